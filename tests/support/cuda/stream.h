// tests/support/cuda/stream.h: streams and graphs that are destroyed with their owner.
#pragma once

#include <cuda_runtime_api.h>

#include "mxkern/core/device.h"
#include "tests/support/cuda/memory.h"

namespace mxkern::test {

class OwnedStream {
 public:
  OwnedStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnedStream() { cudaStreamDestroy(stream_); }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  operator cudaStream_t() const { return stream_; }
  operator Stream() const { return {stream_}; }

 private:
  cudaStream_t stream_;
};

// What `work` does on the stream, captured.
class OwnedGraph {
 public:
  template <class Work>
  OwnedGraph(cudaStream_t stream, Work&& work) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    work();
    cudaGraph_t graph;
    check_cuda(cudaStreamEndCapture(stream, &graph));
    check_cuda(cudaGraphGetNodes(graph, nullptr, &nodes_));
    check_cuda(cudaGraphInstantiate(&executable_, graph, 0));
    check_cuda(cudaGraphDestroy(graph));
  }
  ~OwnedGraph() { cudaGraphExecDestroy(executable_); }
  OwnedGraph(const OwnedGraph&) = delete;
  OwnedGraph& operator=(const OwnedGraph&) = delete;

  // Kernels, and copies.
  std::size_t nodes() const { return nodes_; }

  void launch(cudaStream_t stream) const { check_cuda(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraphExec_t executable_;
  std::size_t nodes_ = 0;
};

}  // namespace mxkern::test
