// cpu/any/quantize.cc: quantizes a tensor by a scheme that is known at run time, in parallel, to
// codes and scales or back to values.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "cpu/any/backend.h"
#include "cpu/any/choice.h"
#include "cpu/any/tensor.h"
#include "cpu/kernel_table.h"
#include "cpu/runtime/parallel.h"
#include "cpu/runtime/scratch.h"
#include "cpu/quantize/tiles.h"
#include "mxkern/core/float_environment.h"
#include "mxkern/core/philox.h"

namespace mxkern::cpu {
namespace {

// The columns that one task looks at, and the elements.
constexpr std::int64_t task_columns = 2048;
constexpr std::int64_t task_elements = 32 * 1024;

// What a thread keeps for a task: of each block, and of each element of a chunk.
template <class Word>
struct AnyMemory {
  using Float = typename MachineFloat<Word>::Float;
  static constexpr std::int64_t blocks = task_columns;
  alignas(64) Word amax[blocks];
  float multipliers[blocks];
  float scales[blocks];
  alignas(64) Float element_multipliers[any_chunk];
  alignas(64) Float element_scales[any_chunk];
  alignas(64) std::uint16_t random[any_chunk];
  alignas(64) std::uint16_t codes[any_chunk];
};

template <class Word>
class AnyQuantize {
 public:
  using Float = typename MachineFloat<Word>::Float;
  using Memory = AnyMemory<Word>;
  static_assert(sizeof(Memory) <= scratch_bytes);

  // out: codes and scales, or null; values: what they decode to, or null.
  AnyQuantize(const AnyBuffer& x, const AnyScheme& scheme, const AnyBlockScaled* out,
              const AnyBuffer* values, const AnyOptions& options, const AnyKernelsOf<Word>& kernels)
      : x_(x),
        scheme_(scheme),
        out_(out),
        values_(values),
        options_(options),
        kernels_(kernels),
        scaler_(
            AnyScaler::of(scheme.element, scheme.scale, options.scale, scheme.has_tensor_scale())),
        way_(AnyWay<Word>::of(scheme.element, options.rounding)),
        chooser_(AnyWay<Word>::of(scheme.element, rounding_of_choice(options.rounding))),
        decoder_(AnyDecoder<Word>::of(scheme.element)),
        group_(options.square ? scheme.block_columns
                              : std::max<std::int64_t>(scheme.block_rows, 1)),
        block_(scheme.block_columns == 0 ? std::max<std::int64_t>(x.shape.columns, 1)
                                         : scheme.block_columns) {}

  void run() {
    set_tensor_scale();
    if (out_ != nullptr && out_->scale_layout == ScaleLayout::swizzled) clear_scales();
    if (x_.shape.size() == 0) return;
    if (scheme_.is_whole_tensor()) whole_ = whole_scale();
    const Shape& shape = x_.shape;
    const std::int64_t bands = ceil_div(shape.rows, group_);
    const std::int64_t unit = block_ % 8 == 0 ? block_ : 8 * block_;
    const std::int64_t wanted = std::min(task_columns, std::max(task_elements / group_, unit));
    range_ = std::min(std::max(wanted / unit, std::int64_t{1}) * unit, shape.columns);
    // The scale of a row's own tensor scale is found once.
    const bool whole_rows = scheme_.tensor_scales == TensorScales::row;
    const std::int64_t columns = whole_rows ? shape.columns : range_;
    const std::int64_t across = ceil_div(shape.columns, columns);
    const std::int64_t grain = std::max(grain_elements / (group_ * columns), std::int64_t{1});
    parallel_for(shape.batch * bands * across, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i / across % bands * group_;
        const std::int64_t column = i % across * columns;
        run(Tile{i / (across * bands), row, column, std::min(group_, shape.rows - row),
                 std::min(columns, shape.columns - column)});
      }
    });
  }

 private:
  static AnyRoundingOptions rounding_of_choice(AnyRoundingOptions options) {
    if (options.rounding == AnyRounding::stochastic) options.rounding = AnyRounding::nearest;
    return options;
  }

  AnyScales scales() const {
    return {static_cast<std::byte*>(out_->scales), scheme_.scale.stored_bits() / 8};
  }
  AnyScales given_scales() const {
    return {const_cast<std::byte*>(static_cast<const std::byte*>(options_.scales)),
            scheme_.scale.stored_bits() / 8};
  }

  void clear_scales() const {
    std::memset(out_->scales, 0,
                static_cast<std::size_t>(scheme_.scale_bytes(out_->shape, out_->scale_layout)));
  }

  TensorScale found_scale(Word amax) const {
    // Nearest, as the tensor's elements would be in float32.
    const auto value = static_cast<double>(float_of(amax));
    return any_tensor_scale(scheme_.largest(), float_of(float32::nearest_bits(value)));
  }
  TensorScale given_scale(std::int64_t i) const {
    if (options_.tensor_scale != nullptr) {
      return TensorScale::from_decode_multiplier(options_.tensor_scale[i]);
    }
    return any_tensor_scale(scheme_.largest(), options_.amax[i]);
  }
  bool is_given() const { return options_.tensor_scale != nullptr || options_.amax != nullptr; }

  // The largest of what find(row address) finds in any row.
  template <class Find>
  Word largest_of_rows(Find&& find) const {
    std::atomic<Word> largest = 0;
    if (x_.shape.size() == 0) return 0;
    const std::int64_t rows = x_.shape.rows;
    const std::int64_t grain =
        std::max(grain_elements / std::max<std::int64_t>(x_.shape.columns, 1), std::int64_t{1});
    const std::int64_t pieces = ceil_div(x_.shape.columns, grain_elements);
    parallel_for(x_.shape.batch * rows * pieces, grain, [&](std::int64_t begin, std::int64_t end) {
      Word own = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i / pieces, column = i % pieces * grain_elements;
        const std::int64_t count = std::min(grain_elements, x_.shape.columns - column);
        own = std::max(own, find(any_address(x_, row / rows, row % rows, column), count));
      }
      Word seen = largest.load(std::memory_order_relaxed);
      while (seen < own && !largest.compare_exchange_weak(seen, own, std::memory_order_relaxed)) {
      }
    });
    return largest.load();
  }

  void set_tensor_scale() {
    if (scheme_.tensor_scales != TensorScales::tensor) return;
    tensor_ = is_given() ? given_scale(0) : found_scale(largest_of_rows(kernels_.finite_amax));
    if (out_ != nullptr) *out_->tensor_scale = tensor_.stored;
  }

  AnyBlockScale whole_scale() {
    const Word amax = largest_of_rows([&](const void* x, std::int64_t count) {
      Word largest = 0;
      kernels_.block_amax(x, count, count, &largest);
      return largest;
    });
    AnyBlockScale scale = scale_of(amax, tensor_, 0);
    if (chooses(scale)) {
      AnyChoice<Word> choice(parts_of_choice(), scale, tensor_);
      for (std::int64_t row = 0; row < x_.shape.batch * x_.shape.rows; ++row) {
        choice.add(any_address(x_, row / x_.shape.rows, row % x_.shape.rows, 0), x_.shape.columns);
      }
      scale = choice.best();
    }
    if (out_ != nullptr) scales().store(0, scale.code);
    return scale;
  }

  // The scale of block i, in row-major order of all of them.
  AnyBlockScale scale_of(Word own_amax, const TensorScale& tensor, std::int64_t i) const {
    const std::uint32_t amax = any_amax(own_amax, scheme_.scale.kind, options_.scale.rule);
    if (!float32::is_finite(amax)) return scaler_.poisoned();
    if (options_.scales != nullptr) return scaler_.of_code(given_scales().load(i), tensor);
    if (options_.block_amaxes != nullptr) {
      return scaler_.of_amax(bits_of(options_.block_amaxes[i]) & float32::magnitude_mask, tensor);
    }
    return scaler_.of_amax(amax, tensor);
  }

  bool chooses(const AnyBlockScale& scale) const {
    return options_.scale.mse && options_.scales == nullptr && scale.value == scale.value;
  }

  void run(const Tile& tile) const {
    Memory& memory = scratch<Memory>();
    TensorScale tensor = tensor_;
    if (scheme_.tensor_scales == TensorScales::row) {
      const std::int64_t row = tile.batch * x_.shape.rows + tile.row;
      tensor = is_given() ? given_scale(row)
                          : found_scale(kernels_.finite_amax(
                                any_address(x_, tile.batch, tile.row, 0), x_.shape.columns));
      if (out_ != nullptr) out_->tensor_scale[row] = tensor.stored;
    }
    for (std::int64_t column = 0; column < tile.columns; column += range_) {
      Tile part = tile;
      part.column += column;
      part.columns = std::min(range_, tile.columns - column);
      if (scheme_.is_whole_tensor()) {
        memory.multipliers[0] = whole_.multiplier;
        memory.scales[0] = whole_.value;
      } else {
        find_scales(part, tensor, memory);
      }
      for (std::int64_t row = 0; row < part.rows; ++row) {
        for (std::int64_t start = 0; start < part.columns; start += any_chunk) {
          write(part, row, start, std::min(any_chunk, part.columns - start), tensor, memory);
        }
      }
    }
  }

  typename AnyChoice<Word>::Parts parts_of_choice() const {
    return {scaler_, kernels_, chooser_, decoder_};
  }

  void find_scales(const Tile& part, const TensorScale& tensor, Memory& memory) const {
    const std::int64_t blocks = ceil_div(part.columns, block_);
    std::fill_n(memory.amax, blocks, Word{0});
    for (std::int64_t row = 0; row < part.rows; ++row) {
      kernels_.block_amax(any_address(x_, part.batch, part.row + row, part.column), part.columns,
                          block_, memory.amax);
    }
    // One a row where blocks have one, or where a square's scale is written for each of its rows.
    const std::int64_t scale_rows = options_.square ? part.rows : 1;
    const std::int64_t scale_row = options_.square ? part.row : part.row / group_;
    const std::int64_t first_block = part.column / block_;
    const ScaleIndex plain = scheme_.scale_index(x_.shape, ScaleLayout::row_major);
    const ScaleIndex index = scheme_.scale_index(
        x_.shape, out_ != nullptr ? out_->scale_layout : ScaleLayout::row_major);
    const std::int64_t plain_base = part.batch * plain.size();
    const std::int64_t base = part.batch * index.size();
    for (std::int64_t b = 0; b < blocks; ++b) {
      AnyBlockScale scale =
          scale_of(memory.amax[b], tensor, plain_base + plain.offset(scale_row, first_block + b));
      if (chooses(scale)) {
        AnyChoice<Word> choice(parts_of_choice(), scale, tensor);
        for (std::int64_t row = 0; row < part.rows; ++row) {
          choice.add(any_address(x_, part.batch, part.row + row, part.column + b * block_),
                     std::min(block_, part.columns - b * block_));
        }
        scale = choice.best();
      }
      memory.multipliers[b] = scale.multiplier;
      memory.scales[b] = scale.value;
      if (out_ == nullptr) continue;
      for (std::int64_t row = 0; row < scale_rows; ++row) {
        scales().store(base + index.offset(scale_row + row, first_block + b), scale.code);
      }
    }
  }

  // Fills `target` with the value of each element's block.
  void spread(const float* of_blocks, std::int64_t start, std::int64_t count, Float* target) const {
    std::int64_t b = start / block_;
    std::int64_t end = (b + 1) * block_ - start;
    for (std::int64_t i = 0; i < count; ++b, end += block_) {
      const auto value = static_cast<Float>(of_blocks[b]);
      const std::int64_t last = std::min(end, count);
      for (; i < last; ++i) target[i] = value;
    }
  }

  const std::uint16_t* random_words(const Tile& part, std::int64_t row, std::int64_t start,
                                    std::int64_t count, Memory& memory) const {
    if (options_.rounding.rounding != AnyRounding::stochastic) return nullptr;
    const Shape& shape = x_.shape;
    const std::int64_t r = part.row + row, c = part.column + start;
    if (!options_.words_are_transposed) {
      const auto index =
          static_cast<std::uint64_t>((part.batch * shape.rows + r) * shape.columns + c);
      best_kernels().random_words(options_.seed, options_.offset, index, count, memory.random);
      return memory.random;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const auto index =
          static_cast<std::uint64_t>((part.batch * shape.columns + c + i) * shape.rows + r);
      memory.random[i] =
          static_cast<std::uint16_t>(philox_word(options_.seed, options_.offset, index));
    }
    return memory.random;
  }

  void write(const Tile& part, std::int64_t row, std::int64_t start, std::int64_t count,
             const TensorScale& tensor, Memory& memory) const {
    spread(memory.multipliers, start, count, memory.element_multipliers);
    const AnyStretch<Float> stretch = {
        any_address(x_, part.batch, part.row + row, part.column + start), count,
        memory.element_multipliers, random_words(part, row, start, count, memory)};
    if (out_ == nullptr) {
      spread(memory.scales, start, count, memory.element_scales);
      return kernels_.round(
          stretch, way_, decoder_,
          {memory.element_scales, static_cast<Float>(tensor.stored), scheme_.has_tensor_scale()},
          any_address(*values_, part.batch, part.row + row, part.column + start));
    }
    const int bits = scheme_.element.stored_bits();
    const Shape& shape = x_.shape;
    const std::int64_t row_bytes = scheme_.code_row_bytes(shape.columns);
    const std::int64_t first = part.column + start;
    auto* codes = static_cast<std::uint8_t*>(out_->codes) +
                  (part.batch * shape.rows + part.row + row) * row_bytes + first * bits / 8;
    if (bits >= 8) return kernels_.encode(stretch, way_, bits == 16, codes);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(memory.codes);
    kernels_.encode(stretch, way_, false, bytes);
    pack_any(bits, bytes, count, codes);
    if (first + count != shape.columns) return;
    const std::int64_t written = ceil_div((first + count) * bits, 8);
    std::memset(codes - first * bits / 8 + written, 0,
                static_cast<std::size_t>(row_bytes - written));
  }

  const AnyBuffer& x_;
  const AnyScheme& scheme_;
  const AnyBlockScaled* out_;
  const AnyBuffer* values_;
  const AnyOptions& options_;
  const AnyKernelsOf<Word>& kernels_;
  AnyScaler scaler_;
  AnyWay<Word> way_, chooser_;
  AnyDecoder<Word> decoder_;
  std::int64_t group_, block_, range_ = 0;
  TensorScale tensor_ = {1.0f, 1.0f, 1.0f};
  AnyBlockScale whole_ = {};
};

// Whether rows follow one another as a single line does, scales and codes included.
bool is_line(const AnyBuffer& x, const AnyScheme& scheme, const AnyOptions& options,
             ScaleLayout layout) {
  const std::int64_t columns = x.shape.columns;
  return scheme.block_rows == 1 && scheme.block_columns != 0 && !options.square &&
         layout == ScaleLayout::row_major && scheme.tensor_scales != TensorScales::row &&
         !options.words_are_transposed && is_dense(x) && columns % scheme.block_columns == 0 &&
         columns * scheme.element.stored_bits() % 8 == 0;
}

AnyBuffer as_line(const AnyBuffer& x) {
  return {Buffer::dense(x.data, x.dtype, {1, 1, x.shape.size()}, x.device), x.is_float64};
}

void run(const AnyBuffer& x, const AnyScheme& scheme, const AnyBlockScaled* out,
         const AnyBuffer* values, const AnyOptions& options, const KernelTable& kernels) {
  const FloatEnvironment environment;
  visit_any(x, *kernels.any, [&]<class Word>(const AnyKernelsOf<Word>& own) {
    AnyQuantize<Word>(x, scheme, out, values, options, own).run();
  });
}

}  // namespace

void quantize_any(const AnyBuffer& x, const AnyBlockScaled& out, const AnyOptions& options,
                  const KernelTable& kernels) {
  if (!is_line(x, out.scheme, options, out.scale_layout)) {
    return run(x, out.scheme, &out, nullptr, options, kernels);
  }
  const AnyBuffer line = as_line(x);
  AnyBlockScaled out_line = out;
  out_line.shape = line.shape;
  run(line, out.scheme, &out_line, nullptr, options, kernels);
}

void fake_quantize_any(const AnyBuffer& x, const AnyScheme& scheme, const AnyBuffer& out,
                       const AnyOptions& options, const KernelTable& kernels) {
  if (!is_line(x, scheme, options, ScaleLayout::row_major) || !is_dense(out)) {
    return run(x, scheme, nullptr, &out, options, kernels);
  }
  const AnyBuffer line = as_line(x), out_line = as_line(out);
  run(line, scheme, nullptr, &out_line, options, kernels);
}

}  // namespace mxkern::cpu
