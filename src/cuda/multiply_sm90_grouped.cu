// cuda/multiply_sm90_grouped.cu: chooses the tile of a grouped product on Hopper, and launches it.
#include "cuda/multiply_sm90_grouped.h"

#include "check.h"
#include "cuda/device_scope.h"
#include "mxkern/core/dtype.h"

namespace mxkern::cuda {

void multiply_sm90_grouped(const char* function, const RowScaled& a, const RowScaled& b,
                           const DeviceGroups& groups, const CoreFinish& finish, Stream stream) {
  multiply_sm90_grouped_by(grouped_tile_sm90(b.element, b.rows, a.columns),
                           grouped_height_sm90(a.rows, groups.count), function, a, b, groups,
                           finish, stream);
}

void multiply_sm90_grouped_by(const TileSm90& tile, int height, const char* function,
                              const RowScaled& a, const RowScaled& b, const DeviceGroups& groups,
                              const CoreFinish& finish, Stream stream) {
  if (finish.out.shape.size() == 0) return;
  check((a.element == CoreElement::bfloat16) == (b.element == CoreElement::bfloat16), function,
        ": one operand is FP8 and the other bfloat16; expected both of one kind");
  check(a.batch == 1 && groups.count > 0 && b.batch == groups.count && a.columns > 0, function,
        ": a has ", a.batch, " matrices of ", a.columns, " columns and b ", b.batch, " of ",
        groups.count, " groups; expected one matrix, and one for each group");
  check(a.rows < 1 << 30 && groups.count < 1 << 30, function, ": there are ", a.rows, " rows and ",
        groups.count, " groups; expected fewer than 2^30; divide a");
  const DeviceScope scope(finish.out.device, function);
  const GroupedProductSm90 product{
      function, a, b, groups, finish, tile, height, processor_count(function), stream};
  if (a.element == CoreElement::bfloat16) return launch_sm90_grouped<bfloat16, bfloat16>(product);
  visit_fp8_pair(a.element, b.element,
                 [&]<class Left, class Right>() { launch_sm90_grouped<Left, Right>(product); });
}

}  // namespace mxkern::cuda
