// cuda/gemm/portable.cu: launches of the portable product.
#include "cuda/gemm/portable.h"

#include "cuda/runtime/launch.h"
#include "cuda/operands/spread_gate.h"
#include "mxkern/grouped_gemm.h"
#include "mxkern/kernels/gemm/portable/gemm.cuh"
#include "plan/grouped.h"

namespace mxkern::cuda {
namespace {

using kernels::PortableGroups;

kernels::PortableOperand kernel_operand(const char* function, const char* name,
                                        const RowScaled& operand, std::int64_t batch) {
  check(operand.element == CoreElement::bfloat16, function, ": ", name,
        " has 8-bit elements; expected bfloat16 ones, which expand makes");
  check(operand.row_bytes % 16 == 0 && operand.batch_bytes % 16 == 0 &&
            operand.part_bytes % 16 == 0 && starts_on(operand.data, 16),
        function, ": the rows of ", name, " do not start on 16 bytes; expand it first");
  const bool shared = operand.batch == 1 && batch != 1;
  return {static_cast<const std::uint8_t*>(operand.data),
          operand.rows,
          operand.row_bytes,
          shared ? 0 : operand.batch_bytes,
          operand.part_bytes,
          operand.exponents,
          shared ? 0 : operand.rows};
}

template <int Warp, PortableGroups Groups>
void launch_tiles(const char* function, const kernels::PortableParameters& p, Stream stream) {
  using Tile = kernels::PortableTile<Warp>;
  const std::int64_t tiles =
      ceil_div(p.left.rows, Tile::extent) * ceil_div(p.right.rows, Tile::extent);
  launch(function, kernels::gemm_portable_kernel<Warp, Groups>, grid_of(tiles, p.batch),
         Tile::threads, Tile::shared_bytes, stream, p);
}

template <PortableGroups Groups>
void launch_tiles(const char* function, const kernels::PortableParameters& p, Stream stream) {
  if (portable_tile(p.batch, p.left.rows, p.right.rows, processor_count(function)) == 128) {
    launch_tiles<64, Groups>(function, p, stream);
  } else {
    launch_tiles<32, Groups>(function, p, stream);
  }
}

template <int Warp>
void launch_groups(const char* function, const kernels::PortableParameters& p, Stream stream) {
  using Tile = kernels::PortableTile<Warp>;
  const std::int64_t tiles = places_of_groups(p.groups.rows, p.groups.groups, Tile::extent) *
                             ceil_div(p.right.rows, Tile::extent);
  check(tiles < std::int64_t{1} << 31, function, ": the product has ", tiles,
        " tiles; expected fewer than 2^31; divide a");
  launch(function, kernels::gemm_portable_kernel<Warp, PortableGroups::rows>, grid_of(tiles),
         Tile::threads, Tile::shared_bytes, stream, p);
}

// All but how operands go with one another.
kernels::PortableParameters parameters_of(const RowScaled& a, const CoreFinish& finish) {
  kernels::PortableParameters p = {};
  p.columns = a.columns;
  p.parts = a.parts;
  put_finish(finish, p);
  p.out = finish.out.data;
  p.out_dtype = finish.out.dtype;
  p.row_stride = finish.out.row_stride;
  p.vector_stores = starts_on_16(finish.out);
  return p;
}

}  // namespace

void multiply_portable_grouped(const char* function, const RowScaled& a, const RowScaled& b,
                               const DeviceGroups& groups, const CoreFinish& finish,
                               Stream stream) {
  if (finish.out.shape.size() == 0) return;
  const DeviceScope scope(finish.out.device, function);
  check(a.rows < 1 << 30 && groups.count < 1 << 30, function, ": there are ", a.rows, " rows and ",
        groups.count, " groups; expected fewer than 2^30; divide a");
  kernels::PortableParameters p = parameters_of(a, finish);
  p.batch = 1;
  p.left = kernel_operand(function, "a", a, 1);
  p.left.batch_bytes = p.left.exponent_step = 0;  // the batch is the group
  p.right = kernel_operand(function, "b", b, groups.count);
  p.groups = {groups.ends, static_cast<int>(groups.count), static_cast<int>(a.rows)};
  p.bias_step = groups.bias_step;
  p.group_factors = groups.factors;
  // As though groups were equal.
  const std::int64_t each = ceil_div(a.rows, higher_of<std::int64_t>(groups.count, 1));
  if (portable_tile(groups.count, each, b.rows, processor_count(function)) == 128) {
    launch_groups<64>(function, p, stream);
  } else {
    launch_groups<32>(function, p, stream);
  }
}

void multiply_portable_columns(const char* function, const RowScaled& a, const RowScaled& b,
                               const DeviceGroups& groups, const CoreFinish& finish,
                               Stream stream) {
  if (finish.out.shape.size() == 0) return;
  const DeviceScope scope(finish.out.device, function);
  check(a.batch == 1 && b.batch == 1, function, ": there are ", a.batch, " and ", b.batch,
        " matrices; expected one each");
  check(a.columns < 1 << 30 && groups.count < 1 << 30, function, ": there are ", a.columns,
        " columns and ", groups.count, " groups; expected fewer than 2^30; divide a and b");
  kernels::PortableParameters p = parameters_of(a, finish);
  p.batch = groups.count;
  p.left = kernel_operand(function, "a", a, 1);
  p.right = kernel_operand(function, "b", b, 1);
  p.left.batch_bytes = p.left.exponent_step = 0;  // the batch is the group
  p.right.batch_bytes = p.right.exponent_step = 0;
  p.batch_stride = finish.out.batch_stride;
  static_assert(kernels::ColumnEnds::piece == group_columns, "the CPU checks what GPUs do");
  p.column_groups = {groups.ends, static_cast<int>(groups.count), static_cast<int>(a.columns)};
  p.bias_step = groups.bias_step;
  p.group_factors = groups.factors;
  launch_tiles<PortableGroups::columns>(function, p, stream);
}

void multiply_portable(const char* function, const RowScaled& a, const RowScaled& b,
                       const CoreFinish& finish, const CoreGate& gate, Stream stream) {
  const DeviceScope scope(finish.out.device, function);
  kernels::PortableParameters p = parameters_of(a, finish);
  p.batch = finish.out.shape.batch;
  p.left = kernel_operand(function, "a", a, p.batch);
  p.right = kernel_operand(function, "b", b, p.batch);
  p.batch_stride = finish.out.batch_stride;
  p.gate = spread_gate(gate, a, b);
  launch_tiles<PortableGroups::none>(function, p, stream);
}

}  // namespace mxkern::cuda
