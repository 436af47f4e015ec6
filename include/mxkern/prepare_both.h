// mxkern/prepare_both.h: a tensor quantized along its rows and along its columns, both ready for
// products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/core/platform.h"
#include "mxkern/gemm.h"
#include "mxkern/prepare_operand.h"

namespace mxkern {

// How many octaves below the largest scale of a row the smallest one lies, of blocks that are not
// all zeros: 255 for 255 and more. Blocks of NaN count for nothing. A folded row is as exact as
// docs/guide/gemm.md says where this is within its scheme's limit. Each [rows of all matrices], on
// x's device; null where nobody asks.
struct BothSpreads {
  std::uint8_t* rows = nullptr;
  std::uint8_t* columns = nullptr;
};

// Quantizes x [batch, M, K] to `rows` of its shape and to `columns` [batch, K, M], and prepares
// both: what quantize_both and prepare_operand of either make. Both say the scheme, an MX one of
// floating point, and one form: the one that usable_prepared_form gives for folded. Where that is
// source, as on the CPU, their codes and scales are the result; where it is folded, these may be
// null if nobody needs them, and a product of such operands, with precision folded, does nothing
// but multiply. options: the scale rule counts; all else has its default.
//
// workspace: at least prepare_both_workspace_bytes, on x's device, aligned to 64 on the CPU, to 256
// on CUDA. It and the outputs lie in memory of their own. Throws InvalidArgument, Unsupported.
MXKERN_API void prepare_both(const Buffer& x, const PreparedOperand& rows,
                             const PreparedOperand& columns, const BothSpreads& spreads,
                             const QuantizeOptions& options, Workspace workspace,
                             Stream stream = {});

// Of such outputs, whose addresses count only as null or not.
MXKERN_API std::size_t prepare_both_workspace_bytes(const PreparedOperand& rows,
                                                    const PreparedOperand& columns);

}  // namespace mxkern
