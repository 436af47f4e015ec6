// tests/support/cuda/ends_of_a_node.h: grouped products in a graph whose ends another node of it
// writes.
#pragma once

#include <type_traits>

#include "tests/support/cuda/stream.h"
#include "tests/support/cuda/grouped_product.h"

namespace mxkern::test {

// A graph whose ends another node of it writes, so that nobody but the device knows them.
template <class Left>
void expect_ends_of_a_node_ahead(GroupedProduct<Left>&& p, PreparedForm form,
                                 PreparedForm left_form) {
  p.fill(3);
  const Reference wanted = p.wanted();
  OnDevice device(p);
  device.prepare(form);
  if constexpr (std::is_same_v<Left, QuantizedOperand>) device.prepare_left(left_form);
  const std::size_t bytes = grouped_gemm_workspace_bytes(
      device.left(), device.right(), device.groups(), device.out.view(), device.options());
  DeviceCopy memory(std::vector<std::uint8_t>(bytes + 1, 0xFF));
  DeviceCopy source(bytes_of_values(p.ends));
  check_cuda(cudaMemset(device.ends.data(), 0xFF, p.ends.size() * 4));
  check_cuda(cudaDeviceSynchronize());
  const OwnedStream stream;
  const OwnedGraph graph(stream, [&] {
    for (int i = 0; i < 3; ++i) {
      check_cuda(cudaMemcpyAsync(device.ends.data(), source.data(), p.ends.size() * 4,
                                 cudaMemcpyDeviceToDevice, stream));
      device.call(stream, {memory.data(), bytes});
      // Ends that must not be read before the next copy.
      check_cuda(cudaMemsetAsync(device.ends.data(), 0xFF, p.ends.size() * 4, stream));
    }
  });
  for (int i = 0; i < 2; ++i) graph.launch(stream);
  check_cuda(cudaStreamSynchronize(stream));
  device.out.copy_to(p.out);
  EXPECT_TRUE(is_right(p, wanted, "in a graph"));
}

template <class Left>
void expect_ends_of_a_node_ahead(GroupedProduct<Left>&& p, PreparedForm form) {
  expect_ends_of_a_node_ahead(std::move(p), form, form);
}

}  // namespace mxkern::test
