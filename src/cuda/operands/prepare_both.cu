// cuda/operands/prepare_both.cu: rows and columns quantized and folded: in tiles that read x twice,
// or rows in one pass and columns in two.
#include "cuda/operands/prepare_both.h"

#include "cuda/backend.h"
#include "cuda/operands/fold.h"
#include "cuda/operands/folded_rows.h"
#include "cuda/operands/prepare_operand.h"
#include "cuda/runtime/device_scope.h"
#include "cuda/runtime/even_bytes.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/zero_words.h"
#include "mxkern/kernels/operands/both_folded.cuh"
#include "plan/prepare_both.h"

namespace mxkern::cuda {
namespace {

constexpr const char* function = "prepare_both";

using kernels::BothTiles;

// Whether kernels for tiles take x: 16-bit elements in whole octets, and tiles that 31 bits count.
bool takes_tiles(const Buffer& x, const PreparedOperand& rows, const PreparedOperand& columns) {
  constexpr std::int64_t most_words = 0x7FFFFFFF, most_tiles = 0x40000000;
  const BothTiles tiles = BothTiles::of(x.shape);
  return prepares_in_tiles(rows, columns) && x.shape.size() > 0 && size_of(x.dtype) == 2 &&
         starts_on_16(x) && x.shape.columns % 8 == 0 && tiles.extreme_words() <= most_words &&
         tiles.count() <= most_tiles && can_start_early(function);
}

// One kernel finds all scales and another one folds by them: each reads x once.
void prepare_in_tiles(const Buffer& x, const PreparedOperand& rows, const PreparedOperand& columns,
                      const BothSpreads& spreads, ScaleRule rule, void* workspace, Stream stream) {
  const Device device = x.device;
  check_device_pointer(function, "rows.data", rows.data, device);
  check_device_pointer(function, "columns.data", columns.data, device);
  check_device_pointer(function, "spreads.rows", spreads.rows, device);
  check_device_pointer(function, "spreads.columns", spreads.columns, device);
  const BothTiles tiles = BothTiles::of(x.shape);
  auto* const extremes = static_cast<std::uint32_t*>(workspace);
  kernels::BothFoldedParameters p = {};
  p.both.x = {x.data,
              x.batch_stride,
              x.row_stride,
              static_cast<int>(x.shape.rows),
              static_cast<int>(x.shape.columns),
              kernels::BothWalk::of(tiles)};
  p.both.rule = E8M0Rule::of<E4M3>(rule);
  p.both.scales = extremes + tiles.extreme_words();
  p.both.extremes = reinterpret_cast<kernels::LineExtremes*>(extremes);
  p.rows = {folded_rows(x.shape, rows.data), spreads.rows};
  p.columns = {folded_rows(x.shape.transposed(), columns.data), spreads.columns};
  zero_words(function, {extremes, static_cast<int>(tiles.extreme_words())}, stream);
  const auto launch_kernel = [&](auto kernel, int blocks, std::size_t bytes, const auto& argument) {
    const std::int64_t most = std::int64_t{blocks} * processor_count(function);
    const dim3 grid = grid_of(lower_of(tiles.count(), most));
    launch<Start::early>(function, kernel, grid, kernels::patch_threads,
                         even_bytes(function, grid, blocks, static_cast<int>(bytes)), stream,
                         argument);
  };
  const auto fold_as = [&]<class T>(T) {
    launch_kernel(kernels::both_scales_kernel<T>, kernels::both_scales_blocks,
                  sizeof(kernels::BothScalesMemory), p.both);
    launch_kernel(kernels::both_folded_kernel<T>, kernels::both_folded_blocks,
                  sizeof(kernels::BothFoldedMemory), p);
  };
  x.dtype == DType::bfloat16 ? fold_as(bfloat16{}) : fold_as(float16{});
}

// Copies the spreads of a folded operand; those of an empty one are zeros.
void report_spreads(const PreparedOperand& folded, std::uint8_t* to, Stream stream) {
  const Shape& shape = folded.source.shape;
  const auto rows = static_cast<std::size_t>(shape.batch * shape.rows);
  if (to == nullptr || rows == 0) return;
  check_device_pointer(function, "spreads", to, folded.source.device);
  const cudaStream_t queue = handle_of(stream);
  if (shape.columns == 0) {
    return check_cuda(cudaMemsetAsync(to, 0, rows, queue), function, "clear spreads");
  }
  const auto* data = static_cast<const std::uint8_t*>(folded.data);
  check_cuda(cudaMemcpyAsync(to, data + folded_layout(shape).spreads, rows,
                             cudaMemcpyDeviceToDevice, queue),
             function, "copy spreads");
}

}  // namespace

void prepare_both(const Buffer& x, const PreparedOperand& rows, const PreparedOperand& columns,
                  const BlockScaled& codes, void* workspace, const BothSpreads& spreads,
                  const QuantizeOptions& options, Stream stream) {
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "workspace", workspace, x.device);
  if (takes_tiles(x, rows, columns)) {
    return prepare_in_tiles(x, rows, columns, spreads, options.scale_rule, workspace, stream);
  }
  quantize_prepared(x, rows, options.scale_rule, stream);
  if (x.shape.size() > 0) {
    quantize(function, x, nullptr, options, &codes, options, stream);
    PreparedOperand both = columns;
    both.source = codes;
    prepare_operand(both, stream);
  }
  report_spreads(rows, spreads.rows, stream);
  report_spreads(columns, spreads.columns, stream);
}

}  // namespace mxkern::cuda
