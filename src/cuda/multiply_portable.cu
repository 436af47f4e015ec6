// cuda/multiply_portable.cu: launches of the portable product.
#include "cuda/multiply_portable.h"

#include "cuda/launch.h"
#include "cuda/spread_gate.h"
#include "mxkern/kernels/gemm_portable.cuh"

namespace mxkern::cuda {
namespace {

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

template <int Warp>
void launch_tiles(const char* function, const kernels::PortableParameters& p, Stream stream) {
  using Tile = kernels::PortableTile<Warp>;
  const std::int64_t tiles =
      ceil_div(p.left.rows, Tile::extent) * ceil_div(p.right.rows, Tile::extent);
  launch(function, kernels::gemm_portable_kernel<Warp>, grid_of(tiles, p.batch), Tile::threads,
         Tile::shared_bytes, stream, p);
}

}  // namespace

void multiply_portable(const char* function, const RowScaled& a, const RowScaled& b,
                       const CoreFinish& finish, const CoreGate& gate, Stream stream) {
  const DeviceScope scope(finish.out.device, function);
  kernels::PortableParameters p = {};
  p.batch = finish.out.shape.batch;
  p.left = kernel_operand(function, "a", a, p.batch);
  p.right = kernel_operand(function, "b", b, p.batch);
  p.columns = a.columns;
  p.parts = a.parts;
  put_finish(finish, p);
  p.out = finish.out.data;
  p.out_dtype = finish.out.dtype;
  p.row_stride = finish.out.row_stride;
  p.batch_stride = finish.out.batch_stride;
  p.vector_stores = starts_on_16(finish.out);
  p.gate = spread_gate(gate, a, b);
  const int tile = portable_tile(p.batch, a.rows, b.rows, processor_count(function));
  if (tile == 128) {
    launch_tiles<64>(function, p, stream);
  } else {
    launch_tiles<32>(function, p, stream);
  }
}

}  // namespace mxkern::cuda
