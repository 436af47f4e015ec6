// cuda/gemm/hopper/multiply.cu: checks a product for Hopper, chooses its tile, and launches it.
#include "cuda/gemm/hopper/multiply.h"

#include <utility>

#include "cuda/runtime/device_scope.h"
#include "cuda/gemm/hopper/launch.h"

namespace mxkern::cuda {
namespace {

// Tiles are divided where there is memory for it.
bool fits(const TileSm90& tile, const kernels::WorkOrder& work, const PartMemory& memory) {
  return memory.data != nullptr && part_bytes(tile, work) <= memory.bytes &&
         part_counters(tile, work) <= memory.counters;
}

kernels::WorkOrder work_of(const TileSm90& tile, const RowScaled& left, CoreElement right,
                           const Shape& product, int processors, const PartMemory& memory) {
  const std::int64_t k = left.columns;
  if (memory.data != nullptr && memory.work != nullptr) return *memory.work;
  const kernels::WorkOrder work = work_sm90(tile, right, left.parts, product.batch, product.rows,
                                            product.columns, k, processors);
  return fits(tile, work, memory) ? work
                                  : whole_work(tile, step_unit_sm90(right), product.batch,
                                               product.rows, product.columns, k, processors);
}

// The check that the kernels can make the rows that are late.
void check_late_rows(const char* function, const RowScaled& a, const RowScaled& b) {
  for (const RowScaled* x : {&a, &b}) {
    const bool is_expanded = x->element == CoreElement::bfloat16;
    const bool is_folded = a.element == CoreElement::e4m3 && b.element == CoreElement::e4m3 &&
                           x->rows * x->columns <= most_late_codes &&
                           (a.late.codes == nullptr || b.late.codes == nullptr);
    check(x->late.codes == nullptr || (x->batch == 1 && (is_expanded || is_folded)), function,
          ": late rows are of ", x->batch, " matrices of [", x->rows, ", ", x->columns,
          "]; expected one of bfloat16, or one of two of E4M3 with at most ", most_late_codes,
          " codes");
  }
}

}  // namespace

void multiply_sm90(const char* function, const RowScaled& a, const RowScaled& b,
                   const CoreFinish& finish, const CoreGate& gate, Stream stream,
                   const PartMemory& part_memory) {
  Shape shape = finish.out.shape;
  if (shape.size() == 0) return;
  // Of the product that is computed; as its transpose it has b on the left.
  const bool is_transposed = b.scales != nullptr;
  RowScaled left = is_transposed ? b : a, right = is_transposed ? a : b;
  const char *left_name = is_transposed ? "b" : "a", *right_name = is_transposed ? "a" : "b";
  if (is_transposed) std::swap(shape.rows, shape.columns);
  const bool decodes = left.scales != nullptr;
  check((left.element == CoreElement::bfloat16 || decodes) ==
            (right.element == CoreElement::bfloat16),
        function, ": one operand is FP8 and the other bfloat16; expected both of one kind");
  check(!decodes || (left.element == CoreElement::e4m3 && left.parts == 1 && left.columns > 0),
        function, ": ", left_name,
        " has scales; expected E4M3 codes in one part, and at least one column");
  check(
      !decodes || are_scales_to_decode(alignment_of(left.scales, 4), left.scale_index, left.batch),
      function, ": ", left_name,
      " has scales to decode; expected less than 2^32 bytes, four of a row starting on 4 bytes");
  check(a.columns == b.columns, function, ": a has ", a.columns, " columns and b ", b.columns,
        "; expected as many in both");
  check(right.parts == 1, function, ": ", right_name, " has ", right.parts,
        " parts; expected 1: only ", left_name, " may have more");
  check_late_rows(function, left, right);
  if (left.parts == 1) left.part_bytes = left.row_bytes;
  if (left.columns == 0) {  // sums of nothing: no load, but a description has to be valid
    static constexpr std::uintptr_t nowhere = 1 << 20;
    left.data = right.data = reinterpret_cast<const void*>(nowhere);
    left.row_bytes = right.row_bytes = left.batch_bytes = right.batch_bytes = 16;
  }
  const bool left_is_late = left.late.codes != nullptr, right_is_late = right.late.codes != nullptr;
  const DeviceScope device(finish.out.device, function);
  const int processors = processor_count(function);
  const TileSm90 tile = tile_sm90(left.element, right.element, shape.batch, shape.rows,
                                  shape.columns, left.columns, processors);
  const ProductSm90 product{
      function,
      left,
      right,
      finish,
      gate,
      tile,
      is_transposed
          ? band_sm90(right_is_late, left_is_late)  // of the output's tiles
          : band_sm90(left_is_late, right_is_late, right.element != CoreElement::bfloat16),
      work_of(tile, left, right.element, shape, processors, part_memory),
      part_memory.data,
      stream};
  if (decodes) {
    is_transposed ? launch_sm90<bfloat16, E4M3>(product) : launch_sm90<E4M3, bfloat16>(product);
  } else if (left.element == CoreElement::bfloat16) {
    launch_sm90<bfloat16, bfloat16>(product);
  } else {
    visit_fp8_pair(left.element, right.element,
                   [&]<class Left, class Right>() { launch_sm90<Left, Right>(product); });
  }
}

void multiply_fused_dispatch_sm90(const char* function, const FusedDispatchOperand& a,
                                  const FusedDispatchOperand& b, std::uint32_t* progress,
                                  const CoreFinish& finish, const CoreGate& gate, Stream stream,
                                  const PartMemory& part_memory) {
  const Shape& shape = finish.out.shape;
  for (const FusedDispatchOperand* x : {&a, &b}) {
    check(x->folded.element != CoreElement::bfloat16 &&
              x->expanded.element == CoreElement::bfloat16 && x->expanded.batch == 1 &&
              x->expanded.columns > 0,
          function, ": expected one matrix, folded and expanded, with at least one column");
  }
  check_late_rows(function, a.folded, b.folded);
  const std::int64_t k = a.folded.columns;
  const CoreElement left_element = a.folded.element, right_element = b.folded.element;
  const DeviceScope device(finish.out.device, function);
  const int processors = processor_count(function);
  const FusedDispatchTilesSm90 tiles = fused_dispatch_tiles_sm90(
      left_element, right_element, shape.rows, shape.columns, k, processors);
  check(tiles.is_better, function, ": the products of [", shape.rows, ", ", k, "] and [",
        shape.columns, ", ", k, "] are not for one kernel");
  RowScaled left_folded = a.folded, left_expanded = a.expanded;
  left_folded.part_bytes = left_folded.row_bytes;
  left_expanded.part_bytes = left_expanded.row_bytes;
  const bool left_is_late = a.folded.late.codes != nullptr,
             right_is_late = b.folded.late.codes != nullptr;
  const CoreGate open;
  const bool is_divided = fits(tiles.exact, tiles.exact_work, part_memory);
  const ProductSm90 folded{
      function,
      left_folded,
      b.folded,
      finish,
      gate,
      tiles.folded,
      band_sm90(left_is_late, right_is_late, true),
      work_of(tiles.folded, left_folded, right_element, shape, processors, part_memory),
      part_memory.data,
      stream};
  const ProductSm90 exact{function,
                          left_expanded,
                          b.expanded,
                          finish,
                          open,
                          tiles.exact,
                          band_sm90(false, false),
                          is_divided
                              ? tiles.exact_work
                              : whole_work(tiles.exact, step_unit_sm90(CoreElement::bfloat16), 1,
                                           shape.rows, shape.columns, k, processors),
                          part_memory.data,
                          stream};
  const FusedDispatchProductSm90 product{folded, exact, {a.task, b.task}, progress};
  visit_fp8_pair(left_element, right_element, [&]<class Left, class Right>() {
    launch_fused_dispatch_sm90<Left, Right>(product);
  });
}

}  // namespace mxkern::cuda
