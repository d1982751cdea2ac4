"""Compilation of launches for an H100 on a machine without one."""

from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from linbench.kernels.precompile import KernelCall

SHARED_BYTES = 227 * 1024
"""Shared memory that a program may have on an H100."""

_NAMES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float64: "*fp64",
    torch.int64: "*i64",
}


def shared_bytes(call: KernelCall) -> int:
    """Compile a launch as Triton would on an H100, through its assembler; return the bytes that it shares.

    Tensors begin at multiples of 16 bytes, as torch's own memory does.
    """
    parameters = call.kernel.params
    given = dict(zip([each.name for each in parameters], call.arguments, strict=False))
    given |= {name: value for name, value in call.options.items() if name in call.kernel.arg_names}
    options = {name: value for name, value in call.options.items() if name not in call.kernel.arg_names}
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for place, parameter in enumerate(parameters):
        value = given[parameter.name]
        general = bool(parameter.do_not_specialize)
        one = isinstance(value, int) and value == 1 and not general
        if parameter.is_constexpr or value is None or one:
            signature[parameter.name], constants[(place,)] = "constexpr", value
            continue
        if isinstance(value, Tensor):
            signature[parameter.name] = _NAMES[value.dtype]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
        if isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0 and not general):
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(call.kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"]
    return int(compiled.metadata.shared)
