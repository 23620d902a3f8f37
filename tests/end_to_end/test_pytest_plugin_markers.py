"""`zero_recompiles` and `compile_budget`: what passes, what fails, and that every cause is told."""

import pytest
from plugin_runs import failure_of, outcomes, together

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> pytest.RunResult:
    """One session of all the files below."""
    folder = tmp_path_factory.mktemp("markers")
    (folder / "site-packages").mkdir()
    library = folder / "site-packages" / "library.py"
    library.write_text("def theirs(x):\n    return x + 1\n")
    return together(folder, test_zero=ZERO, test_causes=CAUSES, test_budget=BUDGET, test_own=OWN)


ZERO = """
    import threading

    @pytest.mark.zero_recompiles
    def test_same_size():
        sizes(2, 2, 2)

    @pytest.mark.zero_recompiles
    def test_another_size():
        sizes(2, 3)

    @pytest.mark.zero_recompiles(warmup=2)
    def test_in_the_warmup():
        sizes(2, 3, 3)

    @pytest.mark.zero_recompiles(warmup=2)
    def test_after_the_warmup():
        sizes(2, 3, 4)

    @pytest.mark.zero_recompiles(warmup=0)
    def test_in_a_warmup_block(compilediag):
        with compilediag.warmup():
            compiled = sizes(2, 3, 4)
        sizes(4, 3, 2, compiled=compiled)

    @pytest.mark.zero_recompiles(warmup=0)
    def test_after_a_warmup_block(compilediag):
        with compilediag.warmup():
            compiled = sizes(2, 3)
        sizes(4, compiled=compiled)

    @pytest.mark.zero_recompiles
    def test_in_a_thread():
        compiled = sizes(2)
        other = threading.Thread(target=sizes, args=(3,), kwargs={"compiled": compiled})
        other.start()
        other.join()

    @pytest.mark.zero_recompiles(warmup=99)
    def test_steps_are_counted():
        sizes(2, 3, 4)

    @pytest.mark.zero_recompiles(warmup=2)
    def test_the_limit():
        with torch._dynamo.config.patch(recompile_limit=2):
            sizes(2, 3, 4)
    """


def test_zero_recompiles(done: pytest.RunResult) -> None:
    """Recompiles of the first `warmup` steps, and of warm-up blocks, are allowed; no other is, in
    no thread; the attempt that hits the recompile limit is worse than a recompile."""
    assert outcomes(done, "test_zero.py") == {
        "test_same_size": "PASSED",
        "test_another_size": "FAILED",
        "test_in_the_warmup": "PASSED",
        "test_after_the_warmup": "FAILED",
        "test_in_a_warmup_block": "PASSED",
        "test_after_a_warmup_block": "FAILED",
        "test_in_a_thread": "FAILED",
        "test_steps_are_counted": "PASSED",
        "test_the_limit": "FAILED",
    }
    after = failure_of(done, "test_after_the_warmup")
    assert "1 recompile after a warm-up of 2 steps; zero_recompiles allows none" in after
    assert "step 2 " in after
    assert "step 1 " not in after
    limit = failure_of(done, "test_the_limit")
    assert "1 attempt to recompile that left no code" in limit


CAUSES = """
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2
            self.register_buffer("table", torch.zeros(1, 4), persistent=False)

        def forward(self, x):
            return x * self.scale + self.table[: x.size(0)]

    def grow(model, rows):
        model.table = torch.zeros(rows, 4)

    @pytest.mark.zero_recompiles
    def test_three():
        model = Model()
        compiled = torch.compile(model, backend="eager", dynamic=False)
        compiled(torch.ones(1, 4))
        grow(model, 8)
        model.scale = 3
        compiled(torch.ones(3, 4))
    """


def test_every_cause_is_told(done: pytest.RunResult) -> None:
    """Three causes of one recompile, none of them first among equals: each with its variable,
    place, guard, change, step, compile, fix, and who writes it; and no traceback."""
    assert outcomes(done, "test_causes.py") == {"test_three": "FAILED"}
    text = failure_of(done, "test_three")
    lines = text.splitlines()
    assert lines[0] == (
        "compilediag: 1 recompile after a warm-up of 1 step; zero_recompiles allows none"
    )
    heads = [line for line in lines if line.startswith("  CD")]
    assert len(heads) == 3
    changes = ("scale  2 → 3", "table  [1, 4] → [8, 4]", "x  [1, 4] → [3, 4]")
    for change in changes:
        assert [head for head in heads if head.endswith(change)], (change, text)
    assert text.count("guard: ") >= 3
    assert text.count("fix: ") + text.count("advice: ") == 3
    assert text.count(" · step 1 · ") == 3
    assert text.count(" · compile 0/1") == 3
    assert text.count("test_causes.py:") >= 3
    assert "Traceback" not in text
    assert ">   " not in text


BUDGET = """
    budget = pytest.mark.compile_budget

    def broken():
        @torch.compile(backend="eager")
        def cut(x):
            x = x + 1
            torch._dynamo.graph_break()
            return x * 2
        cut(torch.ones(2))

    def eager():
        @torch.compile(backend="eager")
        def loop(x):
            for _ in range(2):
                x = x + 1
                torch._dynamo.graph_break()
            return x
        loop(torch.ones(2))

    @budget(recompiles=2)
    def test_recompiles_at(): sizes(2, 3, 4)
    @budget(recompiles=1)
    def test_recompiles_over(): sizes(2, 3, 4)
    @budget(compiles=3, frames=1)
    def test_compiles_at(): sizes(2, 3, 4)
    @budget(compiles=2, frames=1)
    def test_compiles_over(): sizes(2, 3, 4)
    @budget(graph_breaks=1, frames=2)
    def test_breaks_at(): broken()
    @budget(graph_breaks=0, frames=1)
    def test_breaks_over(): broken()
    @budget(eager_fallbacks=1)
    def test_eager_at(): eager(); sizes(2)
    @budget(eager_fallbacks=0)
    def test_eager_over(): eager(); sizes(2)
    @budget(recompiles=5)
    def test_given_up():
        with torch._dynamo.config.patch(recompile_limit=2):
            sizes(2, 3, 4, 5)
    """


def test_compile_budget(done: pytest.RunResult) -> None:
    """Each count at its budget, and one above it; what is above is listed."""
    found = outcomes(done, "test_budget.py")
    assert {name for name, word in found.items() if word == "PASSED"} == {
        *("test_recompiles_at", "test_compiles_at", "test_breaks_at", "test_eager_at")
    }
    assert set(found.values()) == {"PASSED", "FAILED"}
    expected = {
        "test_recompiles_over": ("2 recompiles, the budget is 1", "x  [2] → [3], [3] → [4]"),
        "test_compiles_over": ("3 compiles, the budget is 2", "0/2 compiled again"),
        "test_breaks_over": ("2 frames, the budget is 1", "cut: compiled once"),
        "test_eager_over": ("1 eager fallback, the budget is 0", "loop ran eager"),
        "test_given_up": ("torch gave up compiling again", "x  [3] → [4]"),
    }
    for name, texts in expected.items():
        told = failure_of(done, name)
        assert all(text in told for text in texts), (name, told)
    # Two budgets are exceeded: one failure tells both.
    assert "1 graph break, the budget is 0" in failure_of(done, "test_breaks_over")


OWN = """
    import sys
    sys.path.insert(0, "site-packages")
    from library import theirs

    def library(*numbers):
        sizes(*numbers, compiled=torch.compile(theirs, backend="eager", dynamic=False))

    own = pytest.mark.compile_budget(recompiles=0, own_code_only=True)

    @own
    def test_only_theirs_again(): sizes(2); library(2, 3)
    @own
    def test_own_again(): sizes(2, 3); library(2)
    @own
    def test_nothing_own(): library(2)
    @pytest.mark.compile_budget(recompiles=0)
    def test_all_code(): sizes(2); library(2, 3)
    """


def test_own_code_only(done: pytest.RunResult) -> None:
    """What recompiles in an installed library because of what the test's own line passes is the
    test's own, and told at that line; what only compiled there leaves nothing to judge."""
    assert "compiled(torch.ones(number)), at " in failure_of(done, "test_only_theirs_again")
    assert outcomes(done, "test_own.py") == {
        "test_only_theirs_again": "FAILED",
        "test_own_again": "FAILED",
        "test_nothing_own": "FAILED",
        "test_all_code": "FAILED",
    }
    assert "nothing of your own code was compiled" in failure_of(done, "test_nothing_own")
