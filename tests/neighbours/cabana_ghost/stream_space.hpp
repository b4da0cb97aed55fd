// SPDX-License-Identifier: Apache-2.0
// An execution space of Kokkos whose kernels are loops on a host stream of Sluice's, under the names of a GPU's: the
// host does not wait for them. For stream_halo.py.
#pragma once

#include <sluice/c/stream.h>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace Kokkos {

class HIP {
 public:
  using execution_space = HIP;
  using memory_space = HostSpace;
  using device_type = Device<HIP, HostSpace>;
  using size_type = HostSpace::size_type;
  using array_layout = LayoutRight;
  using scratch_memory_space = ScratchMemorySpace<HIP>;

  static const char* name() { return "HIP"; }
  static int concurrency() { return 1; }
  static void impl_static_fence(const std::string&) {
    if (sluice_host_stream_synchronize(stream(), SLUICE_FOREVER) != SLUICE_OK) std::abort();
  }
  void fence(const std::string& label = {}) const { impl_static_fence(label); }
  void print_configuration(std::ostream&, bool = false) const {}
  std::uint32_t impl_instance_id() const noexcept { return 1; }
  sluice_host_stream* hip_stream() const { return stream(); }
  sluice_host_stream* cuda_stream() const { return stream(); }
  friend bool operator==(const HIP&, const HIP&) { return true; }

  /// Kernels hold Views without counting them, so that memory must outlive the kernels, as on a GPU.
  static void enqueue(std::function<void()> kernel) {
    sluice_host_stream_run(stream(), &run, new std::function<void()>(std::move(kernel)));
  }

 private:
  static int run(void* kernel) {
    auto* const function = static_cast<std::function<void()>*>(kernel);
    (*function)();
    delete function;
    return 0;
  }
  static sluice_host_stream* stream() {
    static sluice_host_stream* const made = [] {
      sluice_host_stream* stream = nullptr;
      if (sluice_host_stream_create(nullptr, &stream) != SLUICE_OK) std::abort();
      return stream;
    }();
    return made;
  }
};
using Cuda = HIP;
using cudaStream_t = sluice_host_stream*;

template <>
struct Tools::Experimental::DeviceTypeTraits<HIP> {
  static constexpr DeviceType id = DeviceType::HIP;
  static int device_id(const HIP&) { return 0; }
};

namespace Impl {

template <class Functor, class... Traits>
class ParallelFor<Functor, RangePolicy<Traits...>, HIP> {
 public:
  ParallelFor(const Functor& functor, const RangePolicy<Traits...>& policy) : functor_(functor), policy_(policy) {}
  void execute() const {
    HIP::enqueue([functor = functor_, begin = policy_.begin(), end = policy_.end()] {
      for (auto i = begin; i < end; ++i) functor(i);
    });
  }

 private:
  Functor functor_;
  RangePolicy<Traits...> policy_;
};

template <class Functor, class... Traits>
class ParallelFor<Functor, MDRangePolicy<Traits...>, HIP> {
  using Policy = MDRangePolicy<Traits...>;

 public:
  template <class P, class F>
  static int max_tile_size_product(const P&, const F&) {
    return 1024;
  }
  ParallelFor(const Functor& functor, const Policy& policy) : functor_(functor), policy_(policy) {}
  void execute() const {
    HIP::enqueue([tile = HostIterateTile<Policy, Functor, typename Policy::work_tag, void>(policy_, functor_),
                  tiles = policy_.m_num_tiles] {
      for (auto i = decltype(tiles)(0); i < tiles; ++i) tile(i);
    });
  }

 private:
  Functor functor_;
  Policy policy_;
};

/// Blocks the host until the result is there.
template <class Combined, class... Traits>
class ParallelReduce<Combined, MDRangePolicy<Traits...>, HIP> {
  using Policy = MDRangePolicy<Traits...>;
  using Reducer = typename Combined::reducer_type;
  using Reference = typename Reducer::reference_type;

 public:
  template <class P, class F>
  static int max_tile_size_product(const P&, const F&) {
    return 1024;
  }
  template <class Result>
  ParallelReduce(const Combined& combined, const Policy& policy, const Result& result)
      : tile_(policy, combined), policy_(policy), result_(result.data()) {}
  void execute() const {
    policy_.space().fence();
    const Reducer& reducer = tile_.m_func.get_reducer();
    Reference update = reducer.init(result_);
    for (auto i = decltype(policy_.m_num_tiles)(0); i < policy_.m_num_tiles; ++i) tile_(i, update);
    reducer.final(result_);
  }

 private:
  HostIterateTile<Policy, Combined, typename Policy::work_tag, Reference> tile_;
  Policy policy_;
  typename Reducer::pointer_type result_;
};

}  // namespace Impl
}  // namespace Kokkos
