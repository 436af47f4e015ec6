// ops/grouped_rows.cc: grouped products of rows that are copies of rows of the left operand.
#include "ops/grouped_rows.h"

#include <variant>

#include "check/gemm_operand.h"
#include "check/grouped_gemm.h"
#include "cpu/experts/gather_rows.h"
#include "cpu/experts/row_numbers.h"
#include "cpu/gemm/groups.h"
#include "mxkern/prepare_operand.h"
#include "ops/explained_device.h"
#include "ops/memory_pieces.h"
#include "plan/grouped.h"
#include "cuda/experts/gather_rows.h"
#include "cuda/gemm/grouped_gemm.h"

namespace mxkern {
namespace {

constexpr const char* function = "grouped_gemm";

// Whether a product reads what was prepared, and not its source, as the CPU does.
bool reads_data(const PreparedOperand& a, GemmPrecision precision) {
  const bool on_cpu = a.source.device.type == DeviceType::cpu;
  if (a.form == PreparedForm::source || (on_cpu && a.has_source())) return false;
  const bool is_folded = precision == GemmPrecision::folded;
  return !a.has_source() || a.form == (is_folded ? PreparedForm::folded : PreparedForm::expanded);
}

// What is copied: a, or its source.
GemmOperand copied(const GemmOperand& a, GemmPrecision precision) {
  const PreparedOperand* const prepared = prepared_of(a);
  return prepared == nullptr || reads_data(*prepared, precision) ? a : prepared->source;
}

// Room for copies of rows of an operand that `copied` returned.
GemmOperand take_copies(MemoryPieces& pieces, const GemmOperand& from, std::int64_t rows) {
  Shape shape = shape_of(from);
  shape.rows = rows;
  if (const auto* plain = std::get_if<Buffer>(&from)) {
    // Rows that start on 16 bytes are what kernels read fastest.
    const std::int64_t unit = 16 / static_cast<std::int64_t>(size_of(plain->dtype));
    Shape padded = shape;
    padded.columns = round_up(shape.columns, unit);
    Buffer to = take_plain(pieces, plain->dtype, padded, plain->device);
    to.shape = shape;
    return to;
  }
  if (const auto* q = std::get_if<BlockScaled>(&from)) {
    BlockScaled to = take_quantized(pieces, q->scheme, shape, q->device);
    to.tensor_scale = q->tensor_scale;
    return to;
  }
  PreparedOperand to = std::get<PreparedOperand>(from);
  to.source.shape = shape;
  to.source.codes = to.source.scales = nullptr;
  to.bytes = prepared_bytes(to.form, to.source.scheme, shape);
  to.data = pieces.take(static_cast<std::int64_t>(to.bytes));
  return to;
}

// Where everything lies in the working memory.
struct Parts {
  MemoryPieces pieces;
  GemmOperand copies;
  void* ends = nullptr;  // on the CPU, of both
  std::int32_t* rows = nullptr;

  Parts(void* memory, const GemmOperand& from, const Buffer& out, std::int64_t groups)
      : pieces(memory), copies(take_copies(pieces, from, out.shape.rows)) {
    if (out.device.type != DeviceType::cpu) return;
    ends = pieces.take<std::int32_t>(groups);
    rows = pieces.take<std::int32_t>(out.shape.rows);
  }
};

// The options of the product of the copies.
GroupedGemmOptions without_rows(GroupedGemmOptions options) {
  options.rows = nullptr;
  return options;
}

}  // namespace

GemmOperand copies_without_memory(const GemmOperand& a, const Buffer& out,
                                  GemmPrecision precision) {
  MemoryPieces none;
  const GemmOperand from = copied(a, precision);
  return take_copies(none, from, out.shape.rows);
}

std::size_t copies_bytes(const GemmOperand& a, const Buffer& out, GemmPrecision precision) {
  return Parts(nullptr, copied(a, precision), out, 0).pieces.bytes();
}

std::size_t copies_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b,
                                   const Groups& groups, const Buffer& out,
                                   const GroupedGemmOptions& options) {
  const Parts parts(nullptr, copied(a, options.precision), out, groups.count);
  const std::size_t product =
      product_workspace_bytes(parts.copies, b, groups, out, without_rows(options));
  return out.shape.size() == 0 ? 0 : parts.pieces.bytes() + product;
}

void grouped_gemm_of_copies(const GemmOperand& a, const GemmRightOperand& b, const Groups& groups,
                            const Buffer& out, const GroupedGemmOptions& options,
                            Workspace workspace, Stream stream, const GatedOutput* gated) {
  const GroupedGemmOptions own = without_rows(options);
  const GemmOperand from = copied(a, options.precision);
  const bool on_cpu = out.device.type == DeviceType::cpu;
  if (on_cpu) check_groups_of_cpu(CpuGroups{a, b, groups, out, options});
  if (out.shape.size() == 0) {
    const GemmOperand none = copies_without_memory(a, out, options.precision);
    // Checks the ends.
    if (on_cpu) workspace_bytes(CpuGroups{none, b, groups, out, own});
    return;
  }
  const std::size_t first = Parts(nullptr, from, out, groups.count).pieces.bytes();
  check_grouped_workspace(workspace, first, a, b, groups, out, options);
  Parts parts(workspace.data, from, out, groups.count);
  const Workspace rest{static_cast<std::byte*>(workspace.data) + first, workspace.bytes - first};
  const auto check_rest = [&](const Groups& known) {
    const std::size_t needed = product_workspace_bytes(parts.copies, b, known, out, own);
    check_grouped_workspace(workspace, first + needed, a, b, groups, out, options);
  };
  if constexpr (has_cuda) {
    if (!on_cpu) {
      check_rest(groups);
      const CudaGemmCapabilities capabilities = explained_gpu(function, {}, out.device);
      if (copies_rows(
              plan_grouped_cuda(parts.copies, b, groups, options.precision, capabilities))) {
        return cuda::grouped_gemm_as(capabilities, from, b, groups, out, options, rest, stream,
                                     gated);
      }
      cuda::gather_rows(function, from, options.rows, out.shape.rows, parts.copies, stream);
      return cuda::grouped_gemm_as(capabilities, parts.copies, b, groups, out, own, rest, stream,
                                   gated);
    }
  }
  const Groups kept = copy_ends(groups, parts.ends);
  check_rest(kept);  // and the ends
  const std::int64_t count = kept.count == 0 ? 0 : kept.ends[kept.count - 1];
  cpu::copy_row_numbers(function, options.rows, count, shape_of(a).rows, "a", "a row of zeros",
                        parts.rows);
  cpu::gather_rows(from, parts.rows, count, parts.copies);
  grouped_gemm(parts.copies, b, kept, out, own, rest, stream);
}

}  // namespace mxkern
