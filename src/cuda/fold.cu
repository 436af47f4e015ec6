// cuda/fold.cu: launches of the folding kernel.
#include "cuda/fold.h"

#include "cuda/code_stream.h"
#include "cuda/folded_rows.h"
#include "cuda/launch.h"
#include "mxkern/kernels/fold.cuh"

namespace mxkern::cuda {
void fold(const char* function, const BlockScaled& q, void* memory, Stream stream) {
  const DeviceScope scope(q.device, function);
  kernels::FoldParameters p = {};
  p.stream = code_stream(function, q);
  p.out = folded_rows(q.shape, memory);
  const std::int64_t most = kernels::stream_blocks * processor_count(function);
  const dim3 grid = grid_of(std::min(p.stream.groups, most));
  visit(q.scheme, [&](auto scheme) {
    using S = decltype(scheme);
    if constexpr (can_fold<S>) {
      launch(function, kernels::fold_kernel<S>, grid, kernels::team_threads,
             kernels::stream_stages * p.stream.stage_bytes, stream, p);
    } else {
      check(false, function, ": ", S::name,
            " cannot be folded: its elements do not fit into 8-bit floats; use precision exact");
    }
  });
}

}  // namespace mxkern::cuda
