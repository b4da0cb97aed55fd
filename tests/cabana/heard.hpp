// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

/// Records the names of kernels, fences and regions that Kokkos reports to profilers while this lives. One at a time.
class Heard {
 public:
  Heard() {
    names().clear();
    listen([](const char* name, std::uint32_t, std::uint64_t*) { names().emplace_back(name); },
           [](const char* name) { names().emplace_back(name); });
  }
  ~Heard() { listen(nullptr, nullptr); }
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;

  static auto count(const std::string& name) { return std::count(names().begin(), names().end(), name); }

 private:
  static std::vector<std::string>& names() {
    static std::vector<std::string> all;
    return all;
  }
  static void listen(Kokkos_Profiling_beginFunction begin, Kokkos_Profiling_pushFunction push) {
    namespace tools = Kokkos::Tools::Experimental;
    tools::set_begin_parallel_for_callback(begin);
    tools::set_begin_fence_callback(begin);
    tools::set_push_region_callback(push);
  }
};
