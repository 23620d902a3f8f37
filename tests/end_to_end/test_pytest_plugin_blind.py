"""Nothing passes that was not seen: no compile, switched off, evidence lost, a fault of ours."""

import pytest
from plugin_runs import again, failure_of, outcomes, run, together

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> pytest.RunResult:
    """Those that leave torch switched off come last."""
    return together(tmp_path_factory.mktemp("blind"), test_earlier=EARLIER, test_blind=BLIND)


BLIND = """
    import logging.config
    pytestmark = pytest.mark.zero_recompiles

    def test_no_compile(): torch.ones(2) * 2

    def test_not_called(): fresh()

    def test_stance():
        torch.compiler.set_stance("force_eager")
        sizes(2)

    def test_disabled():
        torch.compiler.set_stance("default")
        torch._dynamo.config.disable = True
        sizes(2)

    def test_no_graph():
        torch._dynamo.config.disable = False
        @torch.compile(backend="eager")
        def loop(x):
            for _ in range(2):
                torch._dynamo.graph_break()
                x = x + 1
            return x
        loop(torch.ones(2))
    """


def test_blind_tests_fail(done: pytest.RunResult) -> None:
    """Each with the reason that can be seen, and with what to do."""
    assert set(outcomes(done, "test_blind.py").values()) == {"FAILED"}
    expected = {
        "test_no_compile": "no compiled callable was called: is torch.compile reached",
        "test_not_called": "no compiled callable was called: is torch.compile reached",
        "test_stance": "torch.compiler.set_stance('force_eager') is in force",
        "test_disabled": "torch._dynamo.config.disable is True",
        "test_no_graph": "nothing was compiled: no graph is left of 1 frame",
    }
    for name, text in expected.items():
        told = failure_of(done, name)
        assert told.startswith("compilediag: blind: "), told
        assert text in told, (name, told)


def test_switched_off_by_the_environment(pytester: pytest.Pytester, monkeypatch) -> None:
    """The commonest way to a green test that shows nothing."""
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    done = run(pytester, "@pytest.mark.compile_budget(recompiles=0)\ndef test_it(): sizes(2, 3)\n")
    done.assert_outcomes(failed=1)
    assert "unset TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE" in failure_of(done, "test_it")


EARLIER = """
    compiled = fresh()

    @pytest.mark.compile_budget(frames=1)
    def test_first(): sizes(2, 2, compiled=compiled)
    @pytest.mark.compile_budget(frames=1, recompiles=0)
    def test_second(): sizes(3, 3, compiled=compiled)
    def test_unmarked_first(): sizes(4, compiled=compiled)
    def test_unmarked_second():
        assert len(torch._dynamo.eval_frame._debug_get_cache_entry_list(
            compiled._torchdynamo_orig_callable.__code__)) == 2
    """


def test_compiled_by_an_earlier_test(done: pytest.RunResult) -> None:
    """What earlier tests compiled is forgotten before a judged test, so order decides nothing; what
    a test without a marker compiles is left alone."""
    assert set(outcomes(done, "test_earlier.py").values()) == {"PASSED"}


@pytest.mark.usefixtures("own_interpreter")
def test_torch_is_never_imported(pytester: pytest.Pytester) -> None:
    """A marked test without torch is blind as well; the plugin imports none by itself."""
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.mark.zero_recompiles
        def test_it(): pass

        def test_torch_stays_out():
            assert "torch" not in sys.modules
        """
    )
    done = again(pytester)
    done.assert_outcomes(failed=1, passed=1)
    assert "torch was never seen in the run" in failure_of(done, "test_it")


def test_a_fault_of_ours(pytester: pytest.Pytester) -> None:
    """Fails a test that is judged, and none that only shows its counts."""
    pytester.makeconftest(
        """
        import compilediag.runs.pipeline
        def broken(*arguments):
            raise ZeroDivisionError("ours")
        compilediag.runs.pipeline.diagnose = broken
        """
    )
    done = run(
        pytester,
        """
        def test_shown(): sizes(2)
        @pytest.mark.zero_recompiles
        def test_judged(): sizes(2)
        """,
        "--compilediag",
        "-rA",
    )
    assert outcomes(done) == {"test_shown": "PASSED", "test_judged": "FAILED"}
    assert "ZeroDivisionError: ours" in failure_of(done, "test_judged")
