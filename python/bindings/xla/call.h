// bindings/xla/call.h: one call from a program that XLA compiled: arrays, and what they are as
// numbers, read one after the other into the library's views of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include <xla/ffi/api/ffi.h>

#include "mxkern/core/math.h"
#include "mxkern/mxkern.h"
#include "options/quantize_numbers.h"

namespace mxkern::bindings {

namespace ffi = xla::ffi;

inline constexpr std::size_t workspace_alignment = 256;

// What Python gives a call is its arrays and an attribute of numbers, which say
//   of a quantized operand  scheme, scale layout, batch, rows, columns
//                           and its arrays are codes, scales and, of nvfp4, the tensor scale
//   of an operand of gemm   kind: plain, quantized or prepared; nothing more of a plain one; of the
//                           others the quantized operand, of a prepared one behind the form and
//                           whether the source was kept; its arrays are data, then the source's
// Programs outlive processes and may be written by others: whatever does not fit is an error.
class XlaCall {
 public:
  XlaCall(ffi::RemainingArgs arguments, ffi::RemainingRets results,
          ffi::Span<const std::int64_t> numbers, Device device, Stream stream)
      : arguments_(arguments),
        results_(results),
        numbers_(numbers),
        device_(device),
        stream_(stream) {}

  Device device() const { return device_; }
  Stream stream() const { return stream_; }
  bool on_cpu() const { return device_.type == DeviceType::cpu; }

  std::int64_t number() {
    check_fits(next_number_ < numbers_.size());
    return numbers_[next_number_++];
  }

  int number_up_to(int most) {
    const std::int64_t value = number();
    check_fits(value >= 0 && value <= most);
    return static_cast<int>(value);
  }

  bool flag() { return number_up_to(1) == 1; }

  std::int64_t extent() {
    const std::int64_t extent = number();
    check_fits(extent >= 0 && extent <= largest_extent);
    return extent;
  }

  // One of so many in the library's lists.
  template <class Enumeration, std::size_t Count>
  Enumeration one_of(const Enumeration (&all)[Count]) {
    return all[number_up_to(static_cast<int>(Count) - 1)];
  }

  Scheme scheme() { return one_of(all_schemes); }

  Hadamard hadamard() {
    Hadamard hadamard;
    hadamard.size = number_up_to(1 << 16);
    hadamard.signs.low = static_cast<std::uint64_t>(number());
    hadamard.signs.high = static_cast<std::uint64_t>(number());
    return hadamard;
  }

  Shape shape() {
    Shape shape;
    shape.batch = extent();
    shape.rows = extent();
    shape.columns = extent();
    // Sizes of whatever lies under it are numbers to calculate with.
    check_fits(shape.batch == 0 || shape.rows == 0 ||
               shape.columns <= largest_extent / shape.batch / shape.rows);
    return shape;
  }

  QuantizeOptions options() {
    QuantizeNumbers numbers;
    for (auto& item : numbers) item = static_cast<std::uint64_t>(number());
    check_fits(numbers[0] < std::size(all_scale_rules) && numbers[1] < std::size(all_roundings) &&
               numbers[4] <= 1 && numbers[5] <= std::size(all_block_errors) && numbers[6] <= 128);
    return quantize_options(numbers);
  }

  ffi::AnyBuffer argument() { return found(arguments_.get<ffi::AnyBuffer>(next_argument_++)); }
  ffi::AnyBuffer result() { return *found(results_.get<ffi::AnyBuffer>(next_result_++)); }

  // A plain tensor. Leading dimensions become a batch; a vector has one row.
  Buffer plain(const ffi::AnyBuffer& array) const {
    const auto extents = array.dimensions();
    check_fits(extents.size() > 0);
    Shape shape;
    shape.columns = extents[extents.size() - 1];
    if (extents.size() > 1) shape.rows = extents[extents.size() - 2];
    for (std::size_t i = 0; i + 2 < extents.size(); ++i) shape.batch *= extents[i];
    return Buffer::dense(array.untyped_data(), dtype_of(array), shape, device_);
  }

  // The same of a known shape, whatever the extents are called.
  Buffer plain(const ffi::AnyBuffer& array, const Shape& shape) const {
    check_fits(array.element_count() == static_cast<std::size_t>(shape.size()));
    return Buffer::dense(array.untyped_data(), dtype_of(array), shape, device_);
  }

  // A tensor of bytes, whatever XLA calls their type.
  std::uint8_t* bytes(const ffi::AnyBuffer& array, std::int64_t wanted) const {
    check_fits(array.size_bytes() == static_cast<std::size_t>(wanted));
    return static_cast<std::uint8_t*>(array.untyped_data());
  }

  float* scalar(const ffi::AnyBuffer& array) const {
    check_fits(array.element_type() == ffi::F32 && array.element_count() == 1);
    return static_cast<float*>(array.untyped_data());
  }

  // A number for each of so many groups.
  const std::int32_t* ends(const ffi::AnyBuffer& array, std::int64_t count) const {
    check_fits(array.element_type() == ffi::S32);
    return reinterpret_cast<const std::int32_t*>(bytes(array, count * 4));
  }
  const float* factors(const ffi::AnyBuffer& array, std::int64_t count) const {
    check_fits(array.element_type() == ffi::F32);
    return reinterpret_cast<const float*>(bytes(array, count * 4));
  }

  // From results or from arguments, by a function that gives the next one.
  template <class Next>
  BlockScaled quantized(Scheme scheme, ScaleLayout layout, const Shape& shape, Next next) const {
    BlockScaled q{.scheme = scheme, .shape = shape, .scale_layout = layout, .device = device_};
    const BlockScaled::Sizes sizes = BlockScaled::sizes(scheme, shape, layout);
    q.codes = bytes(next(), sizes.codes);
    q.scales = bytes(next(), sizes.scales);
    if (sizes.tensor_scale != 0) q.tensor_scale = scalar(next());
    return q;
  }

  BlockScaled quantized_argument() {
    const Scheme scheme = this->scheme();
    const ScaleLayout layout = one_of(all_scale_layouts);
    const Shape shape = this->shape();
    return quantized(scheme, layout, shape, [this] { return argument(); });
  }

  // Several tensors at once, if there are that many elements: what jax.vmap makes of one.
  BlockScaled quantized_argument_of(std::size_t elements) {
    const Scheme scheme = this->scheme();
    const ScaleLayout layout = one_of(all_scale_layouts);
    Shape shape = this->shape();
    if (shape.size() > 0) {
      const auto tensors = static_cast<std::int64_t>(elements) / shape.size();
      check_fits(tensors == 1 || !facts_of(scheme).has_tensor_scale);
      shape.batch *= tensors;
    }
    return quantized(scheme, layout, shape, [this] { return argument(); });
  }

  BlockScaled quantized_result(Scheme scheme, ScaleLayout layout, const Shape& shape) {
    return quantized(scheme, layout, shape, [this] { return result(); });
  }

  PreparedOperand prepared_argument() {
    PreparedOperand prepared;
    prepared.form = one_of(all_prepared_forms);
    const bool has_source = flag();
    const ffi::AnyBuffer data = argument();
    if (has_source) {
      prepared.source = quantized_argument();
    } else {
      prepared.source.scheme = scheme();
      prepared.source.scale_layout = one_of(all_scale_layouts);
      prepared.source.shape = shape();
      prepared.source.device = device_;
    }
    prepared.bytes = data.size_bytes();
    prepared.data = data.untyped_data();
    return prepared;
  }

  GemmOperand gemm_operand() {
    switch (number()) {
      case 0: return plain(argument());
      case 1: return quantized_argument();
      case 2: return prepared_argument();
      default: break;
    }
    throw not_fitting();
  }

  GemmRightOperand gemm_right_operand() {
    switch (number()) {
      case 1: return quantized_argument();
      case 2: return prepared_argument();
      default: break;
    }
    throw not_fitting();
  }

  // Memory to work in, which is a result where the program gives any. The CPU can do without.
  Workspace workspace() {
    if (!flag()) return {};
    const ffi::AnyBuffer memory = result();
    // XLA does not align as the library wants it.
    constexpr std::uintptr_t alignment = workspace_alignment;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.untyped_data());
    const std::uintptr_t aligned = (begin + alignment - 1) / alignment * alignment;
    const std::uintptr_t end = begin + memory.size_bytes();
    return {reinterpret_cast<void*>(aligned), end > aligned ? end - aligned : 0};
  }

  // Whether a number is left to read. A program on disk may be older than an operation's options,
  // and then has no numbers for them.
  bool has_numbers() const { return next_number_ < numbers_.size(); }

  // Nothing is left over.
  void end() const {
    check_fits(next_number_ == numbers_.size() && next_argument_ == arguments_.size() &&
               next_result_ == results_.size());
  }

 private:
  static constexpr std::int64_t largest_extent = std::int64_t{1} << 48;

  static InvalidArgument not_fitting() {
    return InvalidArgument(
        "mxkern: a compiled program calls it in a way that it does not know; was it compiled with "
        "another version? Compile it again");
  }

  static void check_fits(bool condition) {
    if (!condition) throw not_fitting();
  }

  template <class T>
  static T found(const ffi::ErrorOr<T>& item) {
    check_fits(item.has_value());
    return *item;
  }

  static DType dtype_of(const ffi::AnyBuffer& array) {
    switch (array.element_type()) {
      case ffi::F32: return DType::float32;
      case ffi::F16: return DType::float16;
      case ffi::BF16: return DType::bfloat16;
      default: throw not_fitting();
    }
  }

  ffi::RemainingArgs arguments_;
  ffi::RemainingRets results_;
  ffi::Span<const std::int64_t> numbers_;
  Device device_;
  Stream stream_;
  std::size_t next_argument_ = 0, next_result_ = 0, next_number_ = 0;
};

}  // namespace mxkern::bindings
