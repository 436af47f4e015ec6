// cuda/multiply_sm90_columns.cu: chooses the tile of a product of groups of columns on Hopper, and
// launches it.
#include "cuda/multiply_sm90_columns.h"

#include "check.h"
#include "cuda/device_scope.h"
#include "mxkern/core/dtype.h"
#include "mxkern/numerics/format.h"

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
  const bool right_e4m3 = b.element == CoreElement::e4m3;
  if (a.element == CoreElement::e4m3) {
    right_e4m3 ? launch_sm90_columns<E4M3, E4M3>(product)
               : launch_sm90_columns<E4M3, E5M2>(product);
  } else {
    right_e4m3 ? launch_sm90_columns<E5M2, E4M3>(product)
               : launch_sm90_columns<E5M2, E5M2>(product);
  }
}

}  // namespace mxkern::cuda
