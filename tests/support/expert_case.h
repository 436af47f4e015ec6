// tests/support/expert_case.h: a layer of a mixture of experts that owns its memory, its result in
// double precision, and the operations that it consists of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "mxkern/combine.h"
#include "mxkern/expert_layer.h"
#include "tests/support/gemm_operand.h"
#include "tests/support/gemm_reference.h"

namespace mxkern::test {

struct ExpertSizes {
  std::int64_t tokens = 13, inputs = 96, hidden = 72, outputs = 40;
};

// Each copy goes to a token by a rule that leaves some tokens without copies and gives one many.
struct ExpertCase {
  PlainTensor x;
  QuantizedOperand gate_up, down;
  std::vector<std::int32_t> ends, rows;
  std::vector<float> weights, factors;
  PlainTensor up_bias, down_bias;
  PlainTensor out;
  ExpertLayerOptions options;
  bool has_others = true;  // biases and factors

  ExpertCase(DType dtype, Scheme scheme, DType out_dtype, std::vector<std::int32_t> expert_ends,
             std::int64_t copies, ExpertSizes n = {})
      : x(dtype, {1, n.tokens, n.inputs}, 3),
        gate_up(scheme, {count(expert_ends), 2 * n.hidden, n.inputs}, ScaleLayout::row_major),
        down(scheme, {count(expert_ends), n.outputs, n.hidden}, ScaleLayout::swizzled),
        ends(std::move(expert_ends)),
        up_bias(dtype, {count(ends), 1, 2 * n.hidden}),
        down_bias(out_dtype, {count(ends), 1, n.outputs}, 0, 5),
        out(out_dtype, {1, n.tokens, n.outputs}, 2) {
    for (std::int64_t i = 0; i < copies; ++i) {
      rows.push_back(static_cast<std::int32_t>(i % 3 == 0 ? 1 : i * 7 % (n.tokens - 1)));
      weights.push_back(static_cast<float>(i % 5) * 0.25f - 0.25f);
    }
    for (std::size_t i = 0; i < ends.size(); ++i) factors.push_back(0.5f + 0.25f * float(i % 3));
    x.fill(normal_values(1));
    gate_up.quantize(normal_values(2));
    down.quantize(normal_values(3));
    up_bias.fill(normal_values(4));
    down_bias.fill(normal_values(5));
  }

  static std::int64_t count(const std::vector<std::int32_t>& values) {
    return static_cast<std::int64_t>(values.size());
  }

  ExpertWeights expert_weights() {
    up_bias.buffer();
    down_bias.buffer();
    ExpertWeights all{gate_up.quantized(), down.quantized()};
    if (!has_others) return all;
    all.gate_up_bias = &up_bias.view;
    all.down_bias = &down_bias.view;
    all.gate_up_factors = all.down_factors = factors.data();
    return all;
  }
  ExpertRouting routing() const {
    return {{ends.data(), count(ends)}, rows.data(), weights.data(), count(rows)};
  }

  void run(const GemmOperand& tokens) {
    const ExpertWeights all = expert_weights();
    const AlignedMemory memory(
        expert_layer_workspace_bytes(tokens, all, routing(), out.buffer(), options));
    expert_layer(tokens, all, routing(), out.buffer(), options, memory.workspace());
  }
  void run() { run(x.buffer()); }

  // The same by one operation after another, to a tensor like out.
  PlainTensor composed() {
    const ExpertWeights all = expert_weights();
    const DType dtype = out.view.dtype;
    const std::int64_t copies = count(rows), hidden = gate_up.view.shape.rows / 2;
    PlainTensor up(dtype, {1, copies, 2 * hidden}), middle(dtype, {1, copies, hidden});
    PlainTensor y(dtype, {1, copies, out.view.shape.columns}), sum = out;
    OwnedRows tokens(x, options), between(middle, options);
    multiply(tokens.make(x), all.gate_up, all.gate_up_bias, all.gate_up_factors, up, true);
    swiglu(up.buffer(), middle.buffer(), options.activation);
    multiply(between.make(middle), all.down, all.down_bias, all.down_factors, y, false);
    Buffer used = y.buffer();
    used.shape.rows = ends.empty() ? 0 : ends.back();
    const AlignedMemory memory(combine_workspace_bytes(used.shape.rows, sum.view.shape.rows));
    combine(used, rows.data(), weights.data(), sum.buffer(), memory.workspace());
    return sum;
  }

  // What exact products of plain rows give, in double precision.
  std::vector<double> wanted() {
    const std::int64_t n = out.view.shape.columns, k = x.view.shape.columns;
    const std::int64_t hidden = gate_up.view.shape.rows / 2;
    std::vector<double> sums(static_cast<std::size_t>(out.view.shape.rows * n));
    for (std::int64_t copy = 0; copy < (ends.empty() ? 0 : ends.back()); ++copy) {
      std::int64_t e = 0;
      while (ends[e] <= copy) ++e;
      const double factor = has_others ? factors[e] : 1.0;
      std::vector<double> up(static_cast<std::size_t>(2 * hidden)), middle;
      for (std::int64_t j = 0; j < 2 * hidden && rows[copy] >= 0; ++j) {
        for (std::int64_t i = 0; i < k; ++i) {
          up[j] += x.value(0, rows[copy], i) * gate_up.value(e, j, i);
        }
      }
      for (std::int64_t j = 0; j < 2 * hidden; ++j) {
        up[j] = up[j] * factor + (has_others ? up_bias.value(e, 0, j) : 0.0);
      }
      const bool halves = options.activation.layout == GateLayout::halves;
      for (std::int64_t j = 0; j < hidden; ++j) {
        middle.push_back(activated(up[halves ? j : 2 * j], up[halves ? hidden + j : 2 * j + 1]));
      }
      for (std::int64_t j = 0; j < n && rows[copy] >= 0; ++j) {
        double y = 0.0;
        for (std::int64_t i = 0; i < hidden; ++i) y += middle[i] * down.value(e, j, i);
        y = y * factor + (has_others ? down_bias.value(e, 0, j) : 0.0);
        sums[rows[copy] * n + j] += weights[copy] * y;
      }
    }
    return sums;
  }

  double activated(double gate, double up) const {
    const SwigluOptions& o = options.activation;
    const double limit = o.limit;
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
    return gate / (1.0 + std::exp(-o.alpha * gate)) * (up + o.offset);
  }

 private:
  // Rows as they are, or quantized to a tensor of their own.
  struct OwnedRows {
    std::optional<QuantizedOperand> q;
    const ExpertLayerOptions& options;

    OwnedRows(const PlainTensor& like, const ExpertLayerOptions& given) : options(given) {
      if (given.scheme) q.emplace(*given.scheme, like.view.shape, ScaleLayout::row_major);
    }
    GemmOperand make(PlainTensor& plain) {
      if (!q) return plain.buffer();
      QuantizeOptions quantizing;
      quantizing.scale_rule = options.scale_rule;
      quantize(plain.buffer(), q->quantized(), quantizing);
      return q->quantized();
    }
  };

  void multiply(const GemmOperand& a, const GemmRightOperand& b, const Buffer* bias,
                const float* given, PlainTensor& to, bool copies) const {
    GroupedGemmOptions own;
    own.bias = bias;
    own.factors = given;
    own.precision = options.precision;
    if (copies) own.rows = rows.data();
    const RowGroups groups{ends.data(), count(ends)};
    const AlignedMemory memory(grouped_gemm_workspace_bytes(a, b, groups, to.buffer(), own));
    grouped_gemm(a, b, groups, to.buffer(), own, memory.workspace());
  }
};

}  // namespace mxkern::test
