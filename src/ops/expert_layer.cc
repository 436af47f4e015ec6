// ops/expert_layer.cc: the layer of a mixture of experts: arguments checked, then the operations
// that it consists of, one after another.
#include "mxkern/expert_layer.h"

#include <algorithm>
#include <optional>

#include "check/experts.h"
#include "check/gemm_operand.h"
#include "cpu/gemm/groups.h"
#include "mxkern/combine.h"
#include "mxkern/prepare_operand.h"
#include "ops/grouped_rows.h"
#include "ops/memory_pieces.h"
#include "plan/core_rows.h"
#if defined(MXKERN_HAS_CUDA)
#include "cuda/experts/combine.h"
#include "cuda/experts/swiglu.h"
#endif

namespace mxkern {
namespace {

// Checked arguments, with strides that all mean something.
struct Layer {
  GemmOperand x;
  const ExpertWeights& weights;
  const ExpertRouting& routing;
  Buffer out;
  const ExpertLayerOptions& options;

  Shape rows_of(std::int64_t columns) const { return {1, routing.copies, columns}; }
  std::int64_t up_columns() const { return source_of(weights.gate_up).shape.rows; }
  bool on_cpu() const { return out.device.type == DeviceType::cpu; }

  // Whether rows are quantized and folded at once.
  bool folds() const {
    return options.scheme && options.precision == GemmPrecision::folded && !on_cpu() &&
           cuda::fold_facts(*options.scheme).can_fold &&
           usable_prepared_form(PreparedForm::folded, *options.scheme, out.device) ==
               PreparedForm::folded;
  }

  GroupedGemmOptions product(const Buffer* bias, const float* factors) const {
    GroupedGemmOptions own;
    own.precision = options.precision;
    own.bias = bias;
    own.factors = factors;
    // Ahead of either product a kernel of this call has waited for all that lies ahead of the call
    // before it let others start: that which copies rows, at least.
    own.groups_are_complete = true;
    return own;
  }
  GroupedGemmOptions up_product() const {
    static constexpr std::int32_t nothing = -1;
    GroupedGemmOptions own = product(weights.gate_up_bias, weights.gate_up_factors);
    own.rows = routing.copies == 0 ? &nothing : routing.rows;
    return own;
  }
  GroupedGemmOptions down_product() const {
    return product(weights.down_bias, weights.down_factors);
  }
};

// Plain rows as a product takes them, and the memory for it.
struct LayerRows {
  GemmOperand operand;  // the rows themselves where nothing is made of them
  float* found_amax = nullptr;
  bool is_made = false;

  LayerRows(MemoryPieces& pieces, const Layer& layer, const GemmOperand& rows) : operand(rows) {
    const auto* plain = std::get_if<Buffer>(&rows);
    if (!layer.options.scheme || plain == nullptr) return;
    is_made = true;
    const Scheme scheme = *layer.options.scheme;
    if (!layer.folds()) {
      const BlockScaled q = take_quantized(pieces, scheme, plain->shape, plain->device);
      if (facts_of(scheme).has_tensor_scale) found_amax = pieces.take<float>(1);
      operand = q;
      return;
    }
    PreparedOperand folded;
    folded.form = PreparedForm::folded;
    folded.source.scheme = scheme;
    folded.source.shape = plain->shape;
    folded.source.device = plain->device;
    folded.bytes = prepared_bytes(folded.form, scheme, plain->shape);
    folded.data = pieces.take(static_cast<std::int64_t>(folded.bytes));
    operand = folded;
  }

  void make(const Layer& layer, const GemmOperand& rows, Stream stream) const {
    if (!is_made) return;
    QuantizeOptions options;
    options.scale_rule = layer.options.scale_rule;
    options.found_amax = found_amax;
    const Buffer& plain = std::get<Buffer>(rows);
    if (const auto* q = std::get_if<BlockScaled>(&operand)) {
      return quantize(plain, *q, options, stream);
    }
    prepare_operand(plain, std::get<PreparedOperand>(operand), options, stream);
  }
};

// The results of both products, of which the second may lie where the first one did.
void* take_products(MemoryPieces& pieces, const Layer& layer) {
  const std::int64_t columns = std::max(layer.up_columns(), layer.out.shape.columns);
  const auto size = static_cast<std::int64_t>(size_of(layer.out.dtype));
  return pieces.take(layer.routing.copies * columns * size);
}

// Where everything lies in the working memory.
struct LayerParts {
  MemoryPieces pieces;
  void* ends;  // the CPU's copy
  LayerRows tokens;
  void* products;
  Buffer hidden;
  LayerRows hidden_rows;

  LayerParts(void* memory, const Layer& layer)
      : pieces(memory),
        ends(pieces.take<std::int32_t>(layer.on_cpu() ? layer.routing.experts.count : 0)),
        tokens(pieces, layer, layer.x),
        products(take_products(pieces, layer)),
        hidden(take_plain(pieces, layer.out.dtype, layer.rows_of(layer.up_columns() / 2),
                          layer.out.device)),
        hidden_rows(pieces, layer, hidden) {}

  Buffer product(const Layer& layer, std::int64_t columns) const {
    return Buffer::dense(products, layer.out.dtype, layer.rows_of(columns), layer.out.device);
  }
};

// What products and the sum need behind these parts, one after another.
struct RestBytes {
  std::size_t up, down, sum;

  RestBytes(const Layer& layer, const LayerParts& parts, const Groups& groups)
      : up(copies_workspace_bytes(parts.tokens.operand, layer.weights.gate_up, groups,
                                  parts.product(layer, layer.up_columns()), layer.up_product())),
        down(product_workspace_bytes(parts.hidden_rows.operand, layer.weights.down, groups,
                                     parts.product(layer, layer.out.shape.columns),
                                     layer.down_product())),
        sum(combine_workspace_bytes(layer.routing.copies, layer.out.shape.rows)) {}

  std::size_t most() const { return std::max({up, down, sum}); }
};

// The sum of the products of each token.
void sum_copies(const Layer& layer, Buffer y, const Groups& groups, Workspace workspace,
                Stream stream) {
  const std::int64_t last = groups.count - 1;
#if defined(MXKERN_HAS_CUDA)
  if (!layer.on_cpu()) {
    if (groups.count == 0) y.shape.rows = 0;
    return cuda::combine("expert_layer", y, layer.routing.rows,
                         groups.count == 0 ? nullptr : groups.ends + last, layer.routing.weights,
                         layer.out, workspace.data, stream, layer.routing.copies > 0);
  }
#endif
  y.shape.rows = groups.count == 0 ? 0 : groups.ends[last];
  combine(y, layer.routing.rows, layer.routing.weights, layer.out, workspace, stream);
}

// The rows of the second product, from the results of the first one; by one kernel where there is
// one, which gives the same bytes.
void make_hidden(const Layer& layer, const LayerParts& parts, const Buffer& up, Stream stream) {
  const SwigluOptions& activation = layer.options.activation;
#if defined(MXKERN_HAS_CUDA)
  const auto* folded = std::get_if<PreparedOperand>(&parts.hidden_rows.operand);
  if (folded != nullptr &&
      cuda::swiglu_folded("expert_layer", up, parts.hidden.shape, activation, folded->source.scheme,
                          layer.options.scale_rule, folded->data, stream)) {
    return;
  }
#endif
  swiglu(up, parts.hidden, activation, stream);
  parts.hidden_rows.make(layer, parts.hidden, stream);
}

void run(const Layer& layer, const LayerParts& parts, const Groups& groups, Workspace rest,
         Stream stream) {
  const Buffer up = parts.product(layer, layer.up_columns());
  const Buffer down = parts.product(layer, layer.out.shape.columns);
  parts.tokens.make(layer, layer.x, stream);
  const GroupedGemmOptions options = layer.up_product();
  if (!layer.on_cpu() && !layer.options.scheme) {
    const GatedOutput hidden{parts.hidden, layer.options.activation};
    grouped_gemm_of_copies(parts.tokens.operand, layer.weights.gate_up, groups, up, options, rest,
                           stream, &hidden);
  } else {
    grouped_gemm(parts.tokens.operand, layer.weights.gate_up, groups, up, options, rest, stream);
    make_hidden(layer, parts, up, stream);
  }
  grouped_gemm(parts.hidden_rows.operand, layer.weights.down, groups, down, layer.down_product(),
               rest, stream);
  sum_copies(layer, down, groups, rest, stream);
}

}  // namespace

void expert_layer(const GemmOperand& x, const ExpertWeights& weights, const ExpertRouting& routing,
                  const Buffer& out, const ExpertLayerOptions& options, Workspace workspace,
                  Stream stream) {
  check_expert_layer(x, weights, routing, out, options);
  const Layer layer{with_strides(x), weights, routing, with_strides(out), options};
  const std::size_t first = LayerParts(nullptr, layer).pieces.bytes();
  check_expert_workspace(workspace, first, x, weights, routing, out);
  const LayerParts parts(workspace.data, layer);
  Groups groups = routing.experts;
  if (layer.on_cpu()) groups = copy_ends(groups, parts.ends);
  const std::size_t needed = first + RestBytes(layer, parts, groups).most();
  check_expert_workspace(workspace, needed, x, weights, routing, out);
  void* const rest = static_cast<std::uint8_t*>(workspace.data) + first;
  run(layer, parts, groups, {rest, workspace.bytes - first}, stream);
}

std::size_t expert_layer_workspace_bytes(const GemmOperand& x, const ExpertWeights& weights,
                                         const ExpertRouting& routing, const Buffer& out,
                                         const ExpertLayerOptions& options) {
  check_expert_layer(x, weights, routing, out, options);
  const Layer layer{with_strides(x), weights, routing, with_strides(out), options};
  const LayerParts parts(nullptr, layer);
  return parts.pieces.bytes() + RestBytes(layer, parts, routing.experts).most();
}

}  // namespace mxkern
