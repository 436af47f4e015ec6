// cuda/experts/gather_rows.cu: launches of the kernel that copies rows.
#include "cuda/experts/gather_rows.h"

#include <variant>

#include "check/gemm_operand.h"
#include "cuda/runtime/check_pointers.h"
#include "cuda/runtime/device_scope.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/experts/gather_rows.cuh"
#include "mxkern/numerics/visit.h"
#include "plan/core_rows.h"

namespace mxkern::cuda {
namespace {

constexpr std::uint32_t nan_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return 0x7FC00000u;
    case DType::float16: return 0x7E007E00u;
    case DType::bfloat16: return 0x7FC07FC0u;
  }
  return 0;
}

// A row of so many bytes at a distance that is the same on both sides, or not.
kernels::GatherPart part_of(const void* from, std::int64_t from_step, void* to,
                            std::int64_t to_step, std::int64_t bytes, std::uint32_t nan) {
  kernels::GatherPart part;
  part.from = static_cast<const std::uint8_t*>(from);
  part.to = static_cast<std::uint8_t*>(to);
  part.from_step = from_step;
  part.to_step = to_step;
  part.bytes = bytes;
  part.nan = nan;
  part.in_pieces = rows_start_on(from, from_step, 16) && rows_start_on(to, to_step, 16);
  return part;
}

void put(const Buffer& from, const Buffer& to, kernels::GatherRowsParameters& p) {
  const auto size = static_cast<std::int64_t>(size_of(from.dtype));
  p.most = from.shape.rows;
  p.part[0] = part_of(from.data, from.row_stride * size, to.data, to.row_stride * size,
                      from.shape.columns * size, nan_of(from.dtype));
}

void put(const BlockScaled& from, const BlockScaled& to, kernels::GatherRowsParameters& p) {
  const std::int64_t bytes = code_row_bytes(from.scheme, from.shape.columns);
  const ScaleIndex index = from.scale_index();
  const std::uint8_t nan = visit(from.scheme, [](auto scheme) {
    return static_cast<std::uint8_t>(decltype(scheme)::ScaleFormat::nan_byte);
  });
  p.most = from.shape.rows;
  p.part[0] = part_of(from.codes, bytes, to.codes, bytes, bytes, 0);
  if (index.layout == ScaleLayout::row_major) {
    p.part[1] = part_of(from.scales, index.blocks, to.scales, index.blocks, index.blocks,
                        nan * 0x01010101u);
  } else {
    p.scales = {from.scales, to.scales, index, nan};
  }
}

// Elements, and the exponent of each row.
void put(const PreparedOperand& from, const PreparedOperand& to, kernels::GatherRowsParameters& p) {
  const bool is_folded = from.form == PreparedForm::folded;
  const auto layout_of = [&](const PreparedOperand& one) {
    return is_folded ? folded_layout(one.source.shape) : expanded_layout(one.source);
  };
  const RowScaledLayout a = layout_of(from), b = layout_of(to);
  const auto* const source = static_cast<const std::uint8_t*>(from.data);
  auto* const target = static_cast<std::uint8_t*>(to.data);
  p.most = from.source.shape.rows;
  p.part[0] = part_of(source, a.row_bytes, target, b.row_bytes, a.row_bytes,
                      is_folded ? 0x7F7F7F7Fu : nan_of(DType::bfloat16));
  constexpr std::int64_t exponent = sizeof(std::int32_t);
  if (a.spreads > a.exponents) {
    p.part[1] =
        part_of(source + a.exponents, exponent, target + b.exponents, exponent, exponent, 0);
  }
  if (is_folded) p.part[2] = part_of(source + a.spreads, 1, target + b.spreads, 1, 1, 0);
}

}  // namespace

void gather_rows(const char* function, const GemmOperand& from, const std::int32_t* rows,
                 std::int64_t count, const GemmOperand& to, Stream stream) {
  const Device device = visit_source(from, [](const auto& source) { return source.device; });
  const DeviceScope scope(device, stream, function);
  check_pointers(function, left_names, from);
  check_device_pointer(function, "rows", rows, device);
  if (count == 0) return;
  kernels::GatherRowsParameters p = {};
  p.rows = rows;
  p.count = count;
  std::visit(
      [&](const auto& source) { put(source, std::get<std::decay_t<decltype(source)>>(to), p); },
      from);
  launch<Start::early>(function, kernels::gather_rows_kernel, grid_of(count),
                       kernels::gather_threads, 0, stream, p);
}

}  // namespace mxkern::cuda
