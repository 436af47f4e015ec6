// cuda/relative_scales.cu: launches of the kernel that makes multipliers of block scales.
#include "cuda/relative_scales.h"

#include "cuda/launch.h"
#include "cuda/relative_scales_operand.h"

namespace mxkern::cuda {

void relative_scales(const char* function, const BlockScaled& q, void* memory, Stream stream,
                     kernels::Follows follows, const ZeroedWords& zeroed) {
  const DeviceScope scope(q.device, function);
  kernels::RelativeScalesParameters p = {};
  p.scales = relative_scales_operand(q, memory);
  p.follows = follows;
  p.counters = {zeroed.data, zeroed.count};
  launch<Start::early>(function, kernels::relative_scales_kernel, grid_of(p.scales.groups()),
                       kernels::team_threads, 0, stream, p);
}

}  // namespace mxkern::cuda
