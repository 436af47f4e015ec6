// bindings/layer_calls.cc: the forward of a linear layer in one call, as each call from Python
// costs the host some microseconds.
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

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

std::int64_t padded(std::int64_t bytes) { return round_up(bytes, std::int64_t{256}); }

// An operand that is quantized: what was read of its arguments, and where its rows go if Python
// never sees them. folds: both directions are folded, the columns are kept, and the options have a
// scale rule alone.
class Asked {
 public:
  Asked(Call& call, const Signature& signature, Name argument, nb::handle x, nb::handle scheme_name,
        const nb::dict& keywords, int kept, bool folds)
      : kept_(static_cast<Kept>(kept)), folds_(folds), x_(call.look_plain(argument, x)) {
    const Given given = signature.read(keywords);
    scheme_ = scheme_of(call, scheme_name, given);
    of_rows_ = options_of(call, signature, scheme_, given, false).value;
    if (kept_ == Kept::columns) of_columns_ = options_of(call, signature, scheme_, given).value;
    rows_ = {.scheme = all_schemes[scheme_], .shape = x_.extents.shape(), .device = x_.device};
    if (folds_) {
      check_columns(call, x_);
      folded_rows_ = folded(rows_.shape);
      folded_columns_ = folded(transposed(x_.extents).shape());
      workspace_.bytes = prepare_both_workspace_bytes(folded_rows_, folded_columns_);
    } else if (kept_ != Kept::rows) {
      sizes_ = BlockScaled::sizes(rows_.scheme, rows_.shape, {});
    }
  }

  Device device() const { return x_.device; }
  const Extents& extents() const { return x_.extents; }

  std::int64_t scratch_bytes() const {
    return padded(sizes_.codes) + padded(sizes_.scales) + padded(sizes_.tensor_scale) +
           padded(static_cast<std::int64_t>(folded_rows_.bytes)) +
           padded(static_cast<std::int64_t>(workspace_.bytes));
  }

  // Puts the rows at the front of memory, and takes that off.
  void place(std::uint8_t*& memory) {
    const auto take = [&memory](std::int64_t bytes) {
      std::uint8_t* const begin = memory;
      memory += padded(bytes);
      return begin;
    };
    if (folds_) {
      folded_rows_.data = take(static_cast<std::int64_t>(folded_rows_.bytes));
      workspace_.data = take(static_cast<std::int64_t>(workspace_.bytes));
      return;
    }
    rows_.codes = take(sizes_.codes);
    rows_.scales = take(sizes_.scales);
    std::uint8_t* const scale = take(sizes_.tensor_scale);
    if (sizes_.tensor_scale > 0) rows_.tensor_scale = reinterpret_cast<float*>(scale);
  }

  // Quantizes; returns the rows, and appends the parts of what backward takes.
  GemmRightOperand made(Call& call, nb::list& kept) const {
    if (folds_) return both_folded(call, kept);
    const nb::object none = nb::none();
    const BlockScaled* const rows_at = kept_ == Kept::rows ? nullptr : &rows_;
    const QuantizeTarget target{scheme_, 0, none, none, none, rows_at};
    if (kept_ != Kept::columns) {
      const Quantized rows = quantize_one(call, x_, false, of_rows_, target);
      if (kept_ == Kept::rows) append_parts(kept, rows);
      return rows.view;
    }
    const auto [rows, columns] = quantize_two(call, x_, of_rows_, of_columns_, target);
    append_parts(kept, columns);
    return rows.view;
  }

 private:
  PreparedOperand folded(const Shape& shape) const {
    return {PreparedForm::folded,
            {.scheme = rows_.scheme, .shape = shape, .device = rows_.device},
            nullptr,
            prepared_bytes(PreparedForm::folded, rows_.scheme, shape)};
  }

  GemmRightOperand both_folded(Call& call, nb::list& kept) const {
    PreparedOperand columns = folded_columns_;
    const Extents size({static_cast<std::int64_t>(columns.bytes)});
    kept.append(call.make(size, Element::uint8, x_.device, columns.data));
    const Plain plain = call.plain(x_);
    const Stream queue = call.stream(x_.device);
    call.run(0, [&] {
      mxkern::prepare_both(plain.view, folded_rows_, columns, {}, of_rows_, workspace_, queue);
    });
    return folded_rows_;
  }

  int scheme_ = 0;
  Kept kept_;
  bool folds_;
  Array x_;
  QuantizeOptions of_rows_, of_columns_;
  BlockScaled rows_;
  BlockScaled::Sizes sizes_{};
  PreparedOperand folded_rows_, folded_columns_;
  Workspace workspace_;
};

// All rows that Python never sees lie in one array: each costs half a microsecond or more.
nb::object place_rows(Call& call, Asked& x, std::optional<Asked>& weight) {
  const std::int64_t bytes = x.scratch_bytes() + (weight ? weight->scratch_bytes() : 0);
  if (bytes == 0) return {};
  void* data = nullptr;
  nb::object memory = call.make(Extents({bytes}), Element::uint8, x.device(), data);
  auto* next = static_cast<std::uint8_t*>(data);
  x.place(next);
  if (weight) weight->place(next);
  return memory;
}

nb::tuple linear_forward(Calls& calls, nb::handle x, nb::handle weight, nb::handle bias,
                         const Signature& signature, nb::handle x_scheme, const nb::dict& x_options,
                         int x_kept, bool x_folds, nb::handle weight_scheme,
                         const nb::dict& weight_options, int weight_kept, bool weight_folds,
                         nb::handle dtype_name, nb::handle precision) {
  Call call(calls, "linear");
  const int dtype = call.dtype(dtype_name);
  GemmOptions options;
  options.precision = call.precision(precision);
  call.enter("x", x);
  call.detach();
  Asked left(call, signature, "x", x, x_scheme, x_options, x_kept, x_folds);
  std::optional<Asked> right;
  const bool is_given = call.package().block_scaled.made(weight);
  if (!is_given) {
    right.emplace(call, signature, "weight", weight, weight_scheme, weight_options, weight_kept,
                  weight_folds);
  }
  const nb::object memory = place_rows(call, left, right);
  nb::list kept_of_x, kept_of_weight;
  const GemmOperand rows =
      std::visit([](const auto& one) { return GemmOperand(one); }, left.made(call, kept_of_x));
  Quantized given;
  if (is_given) given = call.quantized("weight", weight);
  const GemmRightOperand weights =
      is_given ? GemmRightOperand(given.view) : right->made(call, kept_of_weight);
  Extents extents = left.extents();
  extents.last() = is_given ? given.extents.items[0] : right->extents().items[0];
  const Output y = multiplied(call, rows, weights, extents, bias, nb::none(), dtype, options);
  return nb::make_tuple(y.array, kept_of_weight, kept_of_x);
}

}  // namespace

void bind_layer_calls(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "linear_forward", &linear_forward, "calls"_a, "x"_a, "weight"_a, "bias"_a.none(),
      "signature"_a, "x_scheme"_a, "x_options"_a, "x_kept"_a, "x_folds"_a, "weight_scheme"_a,
      "weight_options"_a, "weight_kept"_a, "weight_folds"_a, "dtype"_a, "precision"_a,
      nb::sig("def linear_forward(calls: Calls, x: object, weight: object, bias: object, "
              "signature: Signature, x_scheme: object, x_options: collections.abc.Mapping[str, "
              "object], x_kept: int, x_folds: bool, weight_scheme: object, weight_options: "
              "collections.abc.Mapping[str, object], weight_kept: int, weight_folds: bool, dtype: "
              "object, precision: "
              "object) -> tuple[typing.Any, list[typing.Any], list[typing.Any]]"));
}

}  // namespace mxkern::bindings
