// cuda/experts/swiglu_folded.cu: launches of the kernel that quantizes and folds what it makes of
// gates.
#include "cuda/experts/swiglu.h"
#include "cuda/operands/folded_rows.h"
#include "cuda/operands/rows_in_warps.h"
#include "cuda/runtime/device_scope.h"
#include "mxkern/kernels/operands/swiglu_folded_rows.cuh"
#include "mxkern/numerics/visit.h"

namespace mxkern::cuda {

bool swiglu_folded(const char* function, const Buffer& x, const Shape& shape,
                   const SwigluOptions& options, Scheme scheme, ScaleRule rule, void* memory,
                   Stream stream) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 30;
  const bool is_mxfp8 =
      visit(scheme, [](auto type) { return std::is_same_v<decltype(type), MxFp8E4M3>; });
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  if (!is_mxfp8 || x.dtype == DType::float32 || shape.batch != 1 || shape.size() == 0 ||
      shape.rows >= most_rows || shape.columns % MxFp8E4M3::block != 0 || !starts_on_16(x) ||
      !can_start_early(function)) {
    return false;
  }
  const RowsInWarps how = rows_in_warps(shape.rows, shape.columns, processor_count(function));
  if (how.octets == 0) return false;
  kernels::SwigluFoldedRowsParameters p = {};
  p.x = x.data;
  p.row_stride = x.row_stride;
  p.rows = static_cast<int>(shape.rows);
  p.columns = static_cast<int>(shape.columns);
  p.warps = how.warps;
  p.follows = kernels::Follows::behind;
  p.rule = E8M0Rule::of<E4M3>(rule);
  p.out = folded_rows(shape, memory);
  p.alpha = options.alpha;
  p.limit = options.limit;
  p.offset = options.offset;
  const auto launch_of = [&](auto type, auto interleaved) {
    using T = decltype(type);
    launch_rows_in_warps(how, [&](auto octets, auto warps) {
      launch<Start::early>(function,
                           kernels::swiglu_folded_rows_kernel<T, interleaved(), octets(), warps()>,
                           how.grid(shape.rows), how.threads(), 0, stream, p);
    });
  };
  const auto launch_with = [&](auto type) {
    options.layout == GateLayout::interleaved ? launch_of(type, std::true_type{})
                                              : launch_of(type, std::false_type{});
  };
  x.dtype == DType::bfloat16 ? launch_with(bfloat16{}) : launch_with(float16{});
  return true;
}

}  // namespace mxkern::cuda
