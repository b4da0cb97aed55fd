// SPDX-License-Identifier: Apache-2.0
// Kernels, regions and fences of Kokkos in the timeline of SLUICE_TRACE.
#pragma once

#include <sluice/trace.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>

namespace sluice::kokkos {

namespace detail {

/// The open spans of the calling thread, the innermost last.
inline std::deque<Span>& open_spans() {
  thread_local std::deque<Span> spans;
  return spans;
}

inline void end_span() {
  if (!open_spans().empty()) open_spans().pop_back();
}

inline void trace_kernels_to_timeline() {
  namespace tools = Kokkos::Tools::Experimental;
  // Otherwise Kokkos fences the whole device before and after each callback.
  tools::set_request_tool_settings_callback(
      [](std::uint32_t, Kokkos_Tools_ToolSettings* settings) { settings->requires_global_fencing = false; });
  constexpr auto begin = [](const char* name, std::uint32_t, std::uint64_t*) { open_spans().emplace_back(name); };
  constexpr auto end = [](std::uint64_t) { end_span(); };
  tools::set_begin_parallel_for_callback(begin);
  tools::set_end_parallel_for_callback(end);
  tools::set_begin_parallel_reduce_callback(begin);
  tools::set_end_parallel_reduce_callback(end);
  tools::set_begin_parallel_scan_callback(begin);
  tools::set_end_parallel_scan_callback(end);
  tools::set_begin_fence_callback([](const char* name, std::uint32_t, std::uint64_t*) {
    open_spans().emplace_back("fence: " + std::string(name));
  });
  tools::set_end_fence_callback(end);
  tools::set_push_region_callback([](const char* name) { open_spans().emplace_back(name); });
  tools::set_pop_region_callback(end_span);
}

}  // namespace detail

/// Makes Kokkos' patterns, regions and fences slices of the timeline from now on, on the track of the thread or
/// HostStream that calls them: on a host space for the time that they run, on a GPU's for the time of the launch.
/// Called before Kokkos::initialize. Does nothing if SLUICE_TRACE names no file, or KOKKOS_TOOLS_LIBS names a tool of
/// Kokkos. Not for programs that load a tool with --kokkos-tools-libs.
inline void trace_kernels() {
  const char* const file = std::getenv("SLUICE_TRACE");
  const bool wanted = file != nullptr && *file != '\0';
  if (wanted && std::getenv("KOKKOS_TOOLS_LIBS") == nullptr) detail::trace_kernels_to_timeline();
}

}  // namespace sluice::kokkos
