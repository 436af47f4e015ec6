// cuda/relative_scales.cu: launches of the kernel that makes multipliers of block scales.
#include "cuda/relative_scales.h"

#include "cuda/folded_rows.h"
#include "cuda/launch.h"
#include "cuda/spread_gate.h"
#include "mxkern/kernels/relative_scales.cuh"

namespace mxkern::cuda {

void relative_scales(const char* function, const BlockScaled& q, void* memory, const CoreGate& gate,
                     const RowScaled* left, const RowScaled* right, Stream stream,
                     kernels::Follows follows, const ZeroedWords& zeroed) {
  const DeviceScope scope(q.device, function);
  const RowScaled view = decoded_view(q, memory);
  kernels::RelativeScalesParameters p = {};
  p.batch = q.shape.batch;
  p.rows = q.shape.rows;
  p.scales = q.scales;
  p.scale_index = q.scale_index();
  p.scales_in_words = scales_in_words(p.scales, p.scale_index);
  p.multipliers = const_cast<std::uint16_t*>(view.multipliers);
  p.row_elements = view.multiplier_row;
  p.exponents = const_cast<std::int32_t*>(view.exponents);
  p.gate = spread_gate(gate, left, right);
  p.follows = follows;
  p.counters = {zeroed.data, zeroed.count};
  constexpr int rows_at_a_time = kernels::team_threads / 32;
  launch<Start::early>(function, kernels::relative_scales_kernel,
                       grid_of(ceil_div(p.batch * p.rows, std::int64_t{rows_at_a_time})),
                       kernels::team_threads, 0, stream, p);
}

}  // namespace mxkern::cuda
