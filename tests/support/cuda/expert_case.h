// tests/support/cuda/expert_case.h: a layer of a mixture of experts on a CUDA device.
#pragma once

#include <optional>
#include <vector>

#include "tests/support/cuda/grouped_product.h"
#include "tests/support/cuda/prepared.h"
#include "tests/support/cuda/stream.h"
#include "tests/support/expert_case.h"

namespace mxkern::test {

struct DeviceExperts {
  ExpertCase& host;
  DevicePlainTensor x, up_bias, down_bias, out;
  DeviceQuantizedOperand gate_up, down;
  DeviceCopy ends, rows, weights, factors;
  std::optional<DevicePrepared> prepared_up, prepared_down;

  explicit DeviceExperts(ExpertCase& c)
      : host(c),
        x(c.x),
        up_bias(c.up_bias),
        down_bias(c.down_bias),
        out(c.out),
        gate_up(c.gate_up),
        down(c.down),
        ends(bytes_of_values(c.ends)),
        rows(bytes_of_values(c.rows)),
        weights(bytes_of_values(c.weights)),
        factors(bytes_of_values(c.factors)) {}

  void prepare(PreparedForm form) {
    if (form == PreparedForm::source) return;
    prepared_up.emplace(form, gate_up.view());
    prepared_down.emplace(form, down.view());
  }

  ExpertWeights expert_weights() {
    ExpertWeights all{gate_up.view(), down.view()};
    if (prepared_up) {
      all.gate_up = prepared_up->operand;
      all.down = prepared_down->operand;
    }
    if (!host.has_others) return all;
    all.gate_up_bias = &up_bias.view();
    all.down_bias = &down_bias.view();
    all.gate_up_factors = all.down_factors = reinterpret_cast<const float*>(factors.data());
    return all;
  }
  ExpertRouting routing() {
    return {{reinterpret_cast<const std::int32_t*>(ends.data()), ExpertCase::count(host.ends)},
            reinterpret_cast<const std::int32_t*>(rows.data()),
            reinterpret_cast<const float*>(weights.data()),
            ExpertCase::count(host.rows)};
  }

  // In a graph that is launched so often.
  void run(int launches = 1) {
    const ExpertWeights all = expert_weights();
    const std::size_t bytes =
        expert_layer_workspace_bytes(x.view(), all, routing(), out.view(), host.options);
    DeviceCopy memory(std::vector<std::uint8_t>(bytes + 1, 0xFF));
    check_cuda(cudaDeviceSynchronize());
    const OwnedStream stream;
    const OwnedGraph graph(stream, [&] {
      expert_layer(x.view(), all, routing(), out.view(), host.options, {memory.data(), bytes},
                   stream);
    });
    for (int i = 0; i < launches; ++i) graph.launch(stream);
    check_cuda(cudaStreamSynchronize(stream));
    out.copy_to(host.out);
  }
};

}  // namespace mxkern::test
