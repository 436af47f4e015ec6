// bindings/layer_calls.cc: the forward of a linear layer in one call, as each call from Python
// costs the host some microseconds.
#include <cstdint>
#include <optional>
#include <utility>

#include "product_arguments.h"
#include "quantize_arguments.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

// Which direction of an operand backward takes.
enum class Kept : int { none, rows, columns };

void append_parts(nb::list& kept, const Quantized& q) {
  for (const nb::object& part : q.parts) {
    if (!part.is_none()) kept.append(part);
  }
}

// An operand that is quantized: what was read of its arguments, and where its rows go if Python
// never sees them.
class Asked {
 public:
  Asked(Call& call, const Signature& signature, Name argument, nb::handle x, nb::handle scheme_name,
        const nb::dict& keywords, int kept)
      : kept_(static_cast<Kept>(kept)), x_(call.look_plain(argument, x)) {
    const Given given = signature.read(keywords);
    scheme_ = scheme_of(call, scheme_name, given);
    of_rows_ = options_of(call, signature, scheme_, given, false).value;
    if (kept_ == Kept::columns) of_columns_ = options_of(call, signature, scheme_, given).value;
    rows_.scheme = all_schemes[scheme_];
    rows_.shape = x_.extents.shape();
    rows_.device = x_.device;
    if (kept_ != Kept::rows) sizes_ = BlockScaled::sizes(rows_.scheme, rows_.shape, {});
  }

  Device device() const { return x_.device; }

  std::int64_t scratch_bytes() const {
    return padded(sizes_.codes) + padded(sizes_.scales) + padded(sizes_.tensor_scale);
  }

  // Puts the rows at the front of memory, and takes that off.
  void place(std::uint8_t*& memory) {
    rows_.codes = memory;
    rows_.scales = rows_.codes + padded(sizes_.codes);
    std::uint8_t* const scale = rows_.scales + padded(sizes_.scales);
    if (sizes_.tensor_scale > 0) rows_.tensor_scale = reinterpret_cast<float*>(scale);
    memory = scale + padded(sizes_.tensor_scale);
  }

  // Quantizes; returns the rows, and appends the parts of what backward takes.
  Quantized quantized(Call& call, nb::list& kept) const {
    const nb::object none = nb::none();
    const BlockScaled* const rows_at = kept_ == Kept::rows ? nullptr : &rows_;
    const QuantizeTarget target{scheme_, 0, none, none, none, rows_at};
    if (kept_ != Kept::columns) {
      Quantized rows = quantize_one(call, x_, false, of_rows_, target);
      if (kept_ == Kept::rows) append_parts(kept, rows);
      return rows;
    }
    auto [rows, columns] = quantize_two(call, x_, of_rows_, of_columns_, target);
    append_parts(kept, columns);
    return std::move(rows);
  }

 private:
  static std::int64_t padded(std::int64_t bytes) { return round_up(bytes, std::int64_t{256}); }

  int scheme_ = 0;
  Kept kept_;
  Array x_;
  QuantizeOptions of_rows_, of_columns_;
  BlockScaled rows_;
  BlockScaled::Sizes sizes_{};
};

// All rows that Python never sees lie in one array: each costs half a microsecond or more.
nb::object place_rows(Call& call, Asked& x, std::optional<Asked>& weight) {
  Extents bytes;
  bytes.dimensions = 1;
  bytes.last() = x.scratch_bytes() + (weight ? weight->scratch_bytes() : 0);
  if (bytes.last() == 0) return {};
  void* data = nullptr;
  nb::object memory = call.make(bytes, Element::uint8, x.device(), data);
  auto* next = static_cast<std::uint8_t*>(data);
  x.place(next);
  if (weight) weight->place(next);
  return memory;
}

nb::tuple linear_forward(Calls& calls, nb::handle x, nb::handle weight, nb::handle bias,
                         const Signature& signature, nb::handle x_scheme, const nb::dict& x_options,
                         int x_kept, nb::handle weight_scheme, const nb::dict& weight_options,
                         int weight_kept, nb::handle dtype_name, nb::handle precision) {
  Call call(calls, "linear");
  const int dtype = call.dtype(dtype_name);
  GemmOptions options;
  options.precision = static_cast<GemmPrecision>(
      call.one_of("precision", precision, call.package().precision_names));
  call.enter("x", x);
  call.detach();
  Asked left(call, signature, "x", x, x_scheme, x_options, x_kept);
  std::optional<Asked> right;
  const bool is_given = call.package().block_scaled.made(weight);
  if (!is_given) {
    right.emplace(call, signature, "weight", weight, weight_scheme, weight_options, weight_kept);
  }
  const nb::object memory = place_rows(call, left, right);
  nb::list kept_of_x, kept_of_weight;
  const Quantized rows = left.quantized(call, kept_of_x);
  const Quantized weights =
      is_given ? call.quantized("weight", weight) : right->quantized(call, kept_of_weight);
  Extents extents = rows.extents;
  extents.last() = weights.extents.items[0];
  const Output y =
      multiplied(call, rows.view, weights.view, extents, bias, nb::none(), dtype, options);
  return nb::make_tuple(y.array, kept_of_weight, kept_of_x);
}

}  // namespace

void bind_layer_calls(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "linear_forward", &linear_forward, "calls"_a, "x"_a, "weight"_a, "bias"_a.none(),
      "signature"_a, "x_scheme"_a, "x_options"_a, "x_kept"_a, "weight_scheme"_a, "weight_options"_a,
      "weight_kept"_a, "dtype"_a, "precision"_a,
      nb::sig("def linear_forward(calls: Calls, x: object, weight: object, bias: object, "
              "signature: Signature, x_scheme: object, x_options: collections.abc.Mapping[str, "
              "object], x_kept: int, weight_scheme: object, weight_options: "
              "collections.abc.Mapping[str, object], weight_kept: int, dtype: object, precision: "
              "object) -> tuple[typing.Any, list[typing.Any], list[typing.Any]]"));
}

}  // namespace mxkern::bindings
