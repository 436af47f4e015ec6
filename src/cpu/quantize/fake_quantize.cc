// cpu/quantize/fake_quantize.cc: quantizes and dequantizes a tensor in parallel, a piece at a time,
// whose codes stay in the first-level cache.
#include <algorithm>

#include "check/quantize.h"
#include "cpu/backend.h"
#include "cpu/runtime/cache.h"
#include "cpu/quantize/patch.h"
#include "cpu/runtime/scratch.h"
#include "mxkern/core/float_environment.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

constexpr std::int64_t most_elements = tile_elements;
constexpr std::int64_t fewest_of_block = 16;

struct FakeMemory {
  Patch patch;
  alignas(64) std::uint8_t codes[most_elements];
  alignas(64) std::uint8_t scales[most_elements / fewest_of_block];
};

// How the kernels of a scheme are called for a tile of x and of out.
class FakeQuantize {
 public:
  FakeQuantize(const Buffer& x, Scheme scheme, const Buffer& out, const QuantizeOptions& options,
               TensorScale tensor, const KernelTable& kernels)
      : source_{x, false, {0, {}}, kernels},
        out_(out),
        options_(options),
        tensor_(tensor),
        scheme_(scheme),
        facts_(facts_of(scheme)),
        streams_(
            are_more_than_caches(out.shape.size() * static_cast<std::int64_t>(size_of(out.dtype)))),
        quantize_(kernels.quantize[static_cast<int>(scheme)][static_cast<int>(x.dtype)]
                                  [static_cast<int>(options.rounding)]),
        dequantize_(kernels.dequantize[static_cast<int>(scheme)][static_cast<int>(x.dtype)]) {}

  // Of no more elements than there is memory for, the codes that fill up a last block included.
  TileShape tile() const {
    const bool square = options_.block_shape == BlockShape::square;
    const bool is_random = options_.rounding == Rounding::stochastic;
    const Shape& shape = source_.x.shape;
    const Shape filled_up{shape.batch, shape.rows, round_up(shape.columns, facts_.block)};
    TileShape tile = line_tile(filled_up, square ? facts_.block : 1,
                               is_random ? Patch::capacity : most_elements);
    tile.columns = std::min(tile.columns, shape.columns);
    return tile;
  }

  void run(const Tile& tile) const {
    FakeMemory& memory = scratch<FakeMemory>();
    const std::uint16_t* random =
        options_.rounding == Rounding::stochastic
            ? memory.patch.load_random(source_, tile, options_.seed, options_.offset)
            : nullptr;
    const std::int64_t code_stride = code_row_bytes(scheme_, tile.columns);
    const ScaleCursor cursor = {
        memory.scales,
        {tile.rows, ceil_div(tile.columns, facts_.block), ScaleLayout::row_major},
        0,
        0};
    quantize_({.x = address(source_.x, tile.batch, tile.row, tile.column),
               .x_stride = source_.x.row_stride,
               .random = random,
               .random_stride = tile.columns,
               .lines = tile.rows,
               .elements = tile.columns,
               .codes = memory.codes,
               .code_stride = code_stride,
               .scales = cursor,
               .rule = options_.scale_rule,
               .tensor = tensor_,
               .square = options_.block_shape == BlockShape::square,
               .transposed = false,
               .four_over_six = options_.four_over_six,
               .block_error = options_.block_error,
               .choice = nullptr,
               .streams = false});
    dequantize_({.codes = memory.codes,
                 .code_stride = code_stride,
                 .scales = cursor,
                 .tensor_scale = facts_.has_tensor_scale ? tensor_.stored : 1.0f,
                 .lines = tile.rows,
                 .elements = tile.columns,
                 .out = address(out_, tile.batch, tile.row, tile.column),
                 .out_stride = out_.row_stride,
                 .streams = streams_});
  }

 private:
  LineSource source_;
  const Buffer& out_;
  const QuantizeOptions& options_;
  TensorScale tensor_;
  Scheme scheme_;
  SchemeFacts facts_;
  bool streams_;
  KernelTable::Quantize quantize_;
  KernelTable::Dequantize dequantize_;
};

TensorScale tensor_scale_of(const Buffer& x, Scheme scheme, const QuantizeOptions& options,
                            const KernelTable& kernels) {
  if (!facts_of(scheme).has_tensor_scale) return {};
  if (options.tensor_scale != nullptr) {
    return TensorScale::from_decode_multiplier(*options.tensor_scale);
  }
  if (options.amax != nullptr) return TensorScale::from_amax(*options.amax);
  float amax = 0.0f;
  tensor_amax(x, &amax, {}, kernels);
  if (options.found_amax != nullptr) *options.found_amax = amax;
  return TensorScale::from_amax(amax);
}

}  // namespace

void fake_quantize(const Buffer& x, Scheme scheme, const Buffer& out,
                   const QuantizeOptions& options, const KernelTable& kernels) {
  const FloatEnvironment environment;  // of the tensor scale; parallel work has its own
  const TensorScale tensor = tensor_scale_of(x, scheme, options, kernels);
  if (x.shape.size() == 0) return;
  const FakeQuantize work(x, scheme, out, options, tensor, kernels);
  for_each_tile(x.shape, work.tile(), [&](const Tile& tile) { work.run(tile); });
}

}  // namespace mxkern::cpu
