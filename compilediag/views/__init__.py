"""Views: functions from a record (receipt, comparison, judgement) to text; they compute nothing."""
