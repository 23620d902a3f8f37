"""The fixture `compilediag`: steady and exact blocks, frames by name, the receipt so far."""

import pytest
from plugin_runs import failure_of, outcomes, together

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> pytest.RunResult:
    """One session of both files."""
    folder = tmp_path_factory.mktemp("fixture")
    return together(folder, test_steady=STEADY, test_exact=EXACT)


STEADY = """
    import threading

    def in_a_thread(number, compiled):
        other = threading.Thread(target=sizes, args=(number,), kwargs={"compiled": compiled})
        other.start()
        other.join()

    def test_quiet(compilediag):
        with compilediag.warmup():
            compiled = sizes(2, 3)
        with compilediag.steady():
            sizes(3, 2, compiled=compiled)

    def test_two_sizes(compilediag):
        compiled = sizes(2)
        with compilediag.steady():
            sizes(3, 4, compiled=compiled)

    def test_first_compile(compilediag):
        sizes(2)
        with compilediag.steady():
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))

    def test_backward(compilediag):
        compiled = torch.compile(lambda x: (x * x).sum(), backend="aot_eager")
        loss = compiled(torch.ones(2, requires_grad=True))
        with compilediag.steady():
            compiled(torch.ones(2, requires_grad=True))
            loss.backward()

    def test_thread(compilediag):
        compiled = sizes(2)
        with compilediag.steady():
            in_a_thread(3, compiled)

    def test_warm_thread(compilediag):
        compiled = sizes(2)
        with compilediag.steady():
            in_a_thread(2, compiled)

    def test_limit(compilediag):
        with torch._dynamo.config.patch(recompile_limit=1):
            compiled = sizes(2, 3)
            with compilediag.steady():
                sizes(4, 5, compiled=compiled)

    def test_stance(compilediag):
        compiled = sizes(2)
        with torch.compiler.set_stance("eager_on_recompile"), compilediag.steady():
            sizes(3, compiled=compiled)

    def test_nothing_called(compilediag):
        sizes(2)
        with compilediag.steady():
            torch.ones(2) * 2

    def test_nothing_compiled(compilediag):
        with compilediag.steady():
            torch.ones(2) * 2

    def test_own_exception(compilediag):
        compiled = sizes(2)
        with compilediag.steady():
            sizes(3, compiled=compiled)
            raise KeyError("mine")
"""


def test_steady(done: pytest.RunResult) -> None:
    """Nothing compiles, in any thread, and something could have: only that passes."""
    found = outcomes(done, "test_steady.py")
    assert {name for name, word in found.items() if word == "PASSED"} == {
        "test_quiet",
        "test_warm_thread",
    }
    assert len(found) == 11
    two = failure_of(done, "test_two_sizes")
    assert "steady() at test_steady.py:" in two
    assert "2 compiles where nothing may compile" in two
    assert "0/1 compiled again" in two
    assert "0/2 compiled again" in two
    assert "x  [2] → [3], [3] → [4]" in two
    assert "advice: " in two
    expected = {
        "test_first_compile": "compiled for the first time",
        "test_backward": "backward compiled",
        "test_thread": "x  [2] → [3]",
        "test_limit": "torch gave up compiling: what runs eager compiles nothing",
        "test_stance": "set_stance('eager_on_recompile') is in force",
        "test_nothing_called": "no compiled callable was called in the block",
        "test_nothing_compiled": "nothing has compiled in this test so far",
        "test_own_exception": "KeyError: 'mine'",
    }
    for name, text in expected.items():
        assert text in failure_of(done, name), (name, failure_of(done, name))
    assert "Traceback" not in two
    assert "def test_two_sizes" not in two


EXACT = """
    def test_exact(compilediag):
        with compilediag.expect(frames=1, compiles=1, recompiles=0):
            compiled = sizes(2)
        with compilediag.expect(recompiles=2, compiles=2):
            sizes(3, 4, compiled=compiled)
        with compilediag.expect(recompiles=0):
            sizes(2, compiled=compiled)

    def test_fewer(compilediag):
        compiled = sizes(2)
        with compilediag.expect(recompiles=2):
            sizes(3, compiled=compiled)

    def test_more(compilediag):
        compiled = sizes(2)
        with compilediag.expect(recompiles=1, graph_breaks=1):
            sizes(3, 4, compiled=compiled)

    def test_hollow(compilediag):
        with compilediag.expect(recompiles=0):
            torch.ones(2)

    def test_unknown(compilediag):
        with compilediag.expect(recompile=0):
            sizes(2)

    def test_nothing_expected(compilediag):
        with compilediag.expect():
            sizes(2)

    def test_frames(compilediag):
        sizes(2, 3)
        compilediag.assert_frames({"double": 2})
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        compilediag.assert_frames({"double": 2}, others=True)
        compilediag.assert_frames({"double": 2, "<lambda>": 1})

    def test_frame_compiled_again(compilediag):
        sizes(2, 3)
        compilediag.assert_frames({"double": 1})

    def test_frame_not_named(compilediag):
        sizes(2)
        compilediag.assert_frames({})

    def test_frame_missing(compilediag):
        sizes(2)
        compilediag.assert_frames({"double": 1, "forward": 1})

    def test_receipt_so_far(compilediag):
        compiled = sizes(2, 3)
        assert compilediag.receipt.compile.recompiles == 1
        assert compilediag.receipt.status == "partial"
        assert [one.rule for one in compilediag.findings] == ["CD105"]
        sizes(4, compiled=compiled)
        assert compilediag.receipt.compile.recompiles == 2
        assert compilediag.receipt.header.configuration.name == "test_exact.py::test_receipt_so_far"
        assert compilediag.receipt.compile.events[0].frame.file == "test_exact.py"

    @pytest.fixture
    def model(compilediag):
        with compilediag.warmup():
            return sizes(2, 3)

    @pytest.mark.zero_recompiles(warmup=0)
    def test_in_a_fixture(model):
        sizes(2, 3, compiled=model)

    def test_too_late(request):
        request.getfixturevalue("compilediag")
"""


def test_exact_blocks_frames_and_the_receipt(done: pytest.RunResult) -> None:
    """Too few is as wrong as too many; every count that is wrong is told, with its causes."""
    found = outcomes(done, "test_exact.py")
    passed = {"test_exact", "test_frames", "test_receipt_so_far", "test_in_a_fixture"}
    assert {name for name, word in found.items() if word == "PASSED"} == passed
    assert len(found) == 13
    more = failure_of(done, "test_more")
    assert "expect(recompiles=1, graph_breaks=1) at test_exact.py:" in more
    assert "2 recompiles, expected 1" in more
    assert "0 graph breaks, expected 1" in more
    expected = {
        "test_fewer": "1 recompile, expected 2",
        "test_hollow": "nothing has compiled in this test so far",
        "test_unknown": "no count called recompile; did you mean recompiles?",
        "test_nothing_expected": "expect() expects nothing",
        "test_frame_compiled_again": "double was compiled 2 times, expected 1",
        "test_frame_not_named": "double was compiled 1 time, expected no other function",
        "test_frame_missing": "forward was compiled 0 times, expected 1",
        "test_too_late": "must be an argument of the test or of one of its fixtures",
    }
    for name, text in expected.items():
        assert text in failure_of(done, name), (name, failure_of(done, name))
