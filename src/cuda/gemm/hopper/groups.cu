// cuda/gemm/hopper/groups.cu: chooses the tile of a product of groups on Hopper, and launches it.
#include "cuda/gemm/hopper/groups.h"

#include "check/arguments.h"
#include "cuda/runtime/device_scope.h"
#include "mxkern/core/dtype.h"

namespace mxkern::cuda {
namespace {

// Both elements are FP8 or both bfloat16.
void check_pair(const char* function, const RowScaled& a, const RowScaled& b) {
  check((a.element == CoreElement::bfloat16) == (b.element == CoreElement::bfloat16), function,
        ": one operand is FP8 and the other bfloat16; expected both of one kind");
}

template <class Launch>
void launch_pair(const RowScaled& a, const RowScaled& b, Launch&& launch) {
  if (a.element == CoreElement::bfloat16) return launch.template operator()<bfloat16, bfloat16>();
  visit_fp8_pair(a.element, b.element, launch);
}

}  // namespace

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
  check_pair(function, a, b);
  check(a.batch == 1 && groups.count > 0 && b.batch == groups.count && a.columns > 0, function,
        ": a has ", a.batch, " matrices of ", a.columns, " columns and b ", b.batch, " of ",
        groups.count, " groups; expected one matrix, and one for each group");
  check(a.rows < 1 << 30 && groups.count < 1 << 30, function, ": there are ", a.rows, " rows and ",
        groups.count, " groups; expected fewer than 2^30; divide a");
  const DeviceScope scope(finish.out.device, function);
  const GroupsProductSm90 product{
      function, a, b, groups, finish, tile, height, processor_count(function), stream};
  launch_pair(a, b, [&]<class Left, class Right>() { launch_sm90_grouped<Left, Right>(product); });
}

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
  check_pair(function, a, b);
  check(a.batch == 1 && b.batch == 1 && a.parts == 1 && a.columns > 0, function, ": a has ",
        a.batch, " matrices of ", a.parts, " parts of ", a.columns, " columns and b ", b.batch,
        "; expected one matrix of one part each");
  check(a.columns < 1 << 30 && groups.count < 1 << 30, function, ": there are ", a.columns,
        " columns and ", groups.count, " groups; expected fewer than 2^30; divide a and b");
  const DeviceScope scope(finish.out.device, function);
  const GroupsProductSm90 product{
      function, a, b, groups, finish, tile, tile.height(a.rows), processor_count(function), stream};
  launch_pair(a, b, [&]<class Left, class Right>() { launch_sm90_columns<Left, Right>(product); });
}

}  // namespace mxkern::cuda
