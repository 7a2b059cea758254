"""Numba's compiler for functions that only compiled code calls; the callers are optimised instead.

A caller's code contains the code of all functions that it calls, optimised and compiled once more with the
caller. In a chain of eight functions the innermost is thus compiled eight times, all but the last in vain if
Python never calls the function itself. Here such a function is typed and lowered, and handed on unoptimised:
only the function that Python calls is optimised, once, with everything in it.

Numba has no option for this. The pass below is added in the documented way (``pipeline_class``), but the
library that it opens overrides private methods of Numba: with a Numba that lacks them,
:data:`INNER_OPTIONS` is empty, which costs nothing but time.
"""

from __future__ import annotations

from typing import Any

try:
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import FunctionPass, register_pass
    from numba.core.typed_passes import NopythonTypeInference

    _known = all(
        hasattr(JITCodeLibrary, name)
        for name in ("_ensure_finalized", "_get_module_for_linking", "get_pointer_to_function", "finalize")
    )
except ImportError:  # pragma: no cover - a Numba that has moved them
    _known = False

INNER_OPTIONS: dict[str, Any] = {}
"""Options of ``numba.njit`` for functions that only compiled code calls."""

if _known:

    class _NoEnvironment:
        """Stand-in for the code generator: there is no machine code to take an environment."""

        def set_env(self, name: str, environment: Any) -> None:
            """Do nothing: compiled code of numbers and arrays never looks at its environment."""

    class _InnerLibrary(JITCodeLibrary):
        """Code for callers to link: not optimised by itself, and without machine code."""

        @property
        def codegen(self) -> _NoEnvironment:
            return _NoEnvironment()

        def finalize(self) -> None:
            """Add the code of the called functions, once each."""
            self._raise_if_finalized()
            for library in dict.fromkeys(self._linking_libraries):
                self._reload_init.update(library._reload_init)
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002 - Numba's signature
            """Return 0: no symbol is defined here."""
            self._ensure_finalized()
            return 0

    @register_pass(mutates_CFG=False, analysis_only=True)
    class _OpenInnerLibrary(FunctionPass):
        """Pass that has the function lowered into an inner library."""

        _name = "collapipe_open_inner_library"

        def __init__(self) -> None:
            FunctionPass.__init__(self)

        def run_pass(self, state: Any) -> bool:
            state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            return False

    class _InnerCompiler(CompilerBase):
        """The default pipeline, with an inner library."""

        def define_pipelines(self) -> list[Any]:
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.add_pass_after(_OpenInnerLibrary, NopythonTypeInference)
            passes.finalize()
            return [passes]

    INNER_OPTIONS["pipeline_class"] = _InnerCompiler
