// cuda/multiply_sm90_columns.cu: chooses the tile of a product of groups of columns on Hopper, and
// launches it.
#include "cuda/multiply_sm90_columns.h"

#include "check.h"
#include "cuda/device_scope.h"
#include "mxkern/core/dtype.h"

namespace mxkern::cuda {

void multiply_sm90_columns(const char* function, const RowScaled& a, const RowScaled& b,
                           const DeviceGroups& groups, const CoreFinish& finish, Stream stream) {
  if (finish.out.shape.size() == 0) return;
  const DeviceScope scope(finish.out.device, function);
  multiply_sm90_columns_by(columns_tile_sm90(b.element, groups.count, a.rows, b.rows, a.columns,
                                             processor_count(function)),
                           function, a, b, groups, finish, stream);
}

void multiply_sm90_columns_by(const TileSm90& tile, const char* function, const RowScaled& a,
                              const RowScaled& b, const DeviceGroups& groups,
                              const CoreFinish& finish, Stream stream) {
  if (finish.out.shape.size() == 0) return;
  check((a.element == CoreElement::bfloat16) == (b.element == CoreElement::bfloat16), function,
        ": one operand is FP8 and the other bfloat16; expected both of one kind");
  check(a.batch == 1 && b.batch == 1 && a.parts == 1 && a.columns > 0, function, ": a has ",
        a.batch, " matrices of ", a.parts, " parts of ", a.columns, " columns and b ", b.batch,
        "; expected one matrix of one part each");
  check(a.columns < 1 << 30 && groups.count < 1 << 30, function, ": there are ", a.columns,
        " columns and ", groups.count, " groups; expected fewer than 2^30; divide a and b");
  const DeviceScope scope(finish.out.device, function);
  const ColumnsProductSm90 product{function, a, b, groups, finish, tile, processor_count(function),
                                   stream};
  if (a.element == CoreElement::bfloat16) return launch_sm90_columns<bfloat16, bfloat16>(product);
  visit_fp8_pair(a.element, b.element,
                 [&]<class Left, class Right>() { launch_sm90_columns<Left, Right>(product); });
}

}  // namespace mxkern::cuda
