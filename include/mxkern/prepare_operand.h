// mxkern/prepare_operand.h: an operand of gemm made ready once, for many products.
#pragma once

#include <cstddef>

#include "mxkern/core/platform.h"
#include "mxkern/quantize.h"
#include "mxkern/tensor/prepared_operand.h"

namespace mxkern {

// The form in which products of many rows read an operand of the scheme fastest on the device:
// folded or expanded on Hopper, expanded on other GPUs, panels on a CPU with AVX2 or AVX-512.
MXKERN_API PreparedForm best_prepared_form(Scheme scheme, Device device);

// `wanted`, or source where the device's products do not read it: panels are the CPU's, the others
// those of a GPU with the kernels. Throws InvalidArgument where the scheme has no such form.
MXKERN_API PreparedForm usable_prepared_form(PreparedForm wanted, Scheme scheme, Device device);

// Of PreparedOperand::data; 0 for PreparedForm::source. Throws InvalidArgument where the scheme has
// no such form: folded is for the floating-point MX schemes.
MXKERN_API std::size_t prepared_bytes(PreparedForm form, Scheme scheme, const Shape& shape);

// Fills out.data, prepared_bytes on q's device, aligned to 128, or to 4 on the CPU, where products
// are faster from multiples of 64. Products take out.source for q, and so it has to be that; it is
// not read here. form source does nothing. Throws InvalidArgument and Unsupported.
// A product reads out.data of form few_tokens, and q's tensor scale, while kernels ahead of it in
// the stream still run: if one of these writes them, and is not this function's, say so with
// GemmOptions::right_is_complete.
MXKERN_API void prepare_operand(const BlockScaled& q, const PreparedOperand& out,
                                Stream stream = {});

// Quantizes x and folds it in one pass over x: out.form is folded, out.source says the scheme and
// x's shape. Its codes and scales are written too, or are null where nobody needs them: then the
// product cannot be exact. Bytes are those of quantize and of the function above.
MXKERN_API void prepare_operand(const Buffer& x, const PreparedOperand& out,
                                const QuantizeOptions& options = {}, Stream stream = {});

}  // namespace mxkern
