// cuda/fold.cu: launches of the folding kernel.
#include "cuda/fold.h"

#include "cuda/folded_rows.h"
#include "cuda/launch.h"
#include "mxkern/kernels/fold.cuh"

namespace mxkern::cuda {

void fold(const char* function, const BlockScaled& q, void* memory, Stream stream,
          kernels::Follows follows, const ZeroedWords& zeroed, const FirstRows& first) {
  const DeviceScope scope(q.device, function);
  check_device_pointer(function, "codes", q.codes, q.device);
  check_device_pointer(function, "scales", q.scales, q.device);
  kernels::FoldParameters p = {};
  p.batch = q.shape.batch;
  p.rows = first.rows > 0 ? first.rows : q.shape.rows;
  p.columns = q.shape.columns;
  p.codes = q.codes;
  p.code_row_bytes = code_row_bytes(q.scheme, q.shape.columns);
  p.scales = q.scales;
  p.scale_index = q.scale_index();
  p.out = folded_rows(q.shape, memory);
  p.scales_in_words = scales_in_words(p.scales, p.scale_index);
  p.follows = follows;
  p.counters[0] = {zeroed.data, zeroed.count};
  p.counters[1] = zeroed_counters(first, q.shape.rows);
  visit(q.scheme, [&](auto scheme) {
    using S = decltype(scheme);
    if constexpr (can_fold<S>) {
      using Unit = kernels::FoldUnit<typename S::Format>;
      p.log2_team = kernels::log2_team(ceil_div(p.columns, Unit::codes));
      p.is_whole =
          p.columns % Unit::codes == 0 && is_aligned(p.codes, p.code_row_bytes, Unit::alignment);
      const int rows = kernels::team_threads >> p.log2_team;
      launch<Start::early>(function, kernels::fold_kernel<S>,
                           grid_of(ceil_div(p.batch * p.rows, rows)), kernels::team_threads, 0,
                           stream, p);
    } else {
      check(false, function, ": ", S::name,
            " cannot be folded: its elements do not fit into 8-bit floats; use precision exact");
    }
  });
}

}  // namespace mxkern::cuda
