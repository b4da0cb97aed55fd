// SPDX-License-Identifier: Apache-2.0
// Files in which threads keep the events that they record, so that the events outlive a process that is killed.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/timeline_file.hpp"
#include "base/trace.hpp"
#include "base/trace_text.hpp"

namespace sluice::base::trace {

struct SliceFile;

/// The last kMost events of one thread since the last flush. They lie in a mapped file, from which another process adds
/// them to the timeline if this process is killed. Where no such file can be made, they lie in memory of the process.
/// One thread at a time calls it.
class Events {
 public:
  /// Makes the file, and its folder. @param name  of the file, which no other file of the job has
  Events(const std::filesystem::path& folder, const std::string& name, const Moment& began);
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  /// The file stays.
  ~Events();

  /// Adds an event. Once the room in the file is used up, takes as much again from the device: no other call makes
  /// system calls.
  /// @param row_of  returns the Row of the event's track. Called once per track.
  template <class RowOf>
  void add(const Event& event, const RowOf& row_of) {
    if (mapped_ != nullptr && event.slice.track != kNone && !named(event.slice.track))
      name_track(event.slice.track, row_of(event.slice.track));
    keep(event);
  }

  /// Adds the events that are kept to `all`. Returns how many were lost.
  std::uint64_t copy_to(std::vector<Event>& all) const;
  /// Notes that the part of this name has the events, once it is published.
  void are_in(const std::string& part) const noexcept;
  void remove_file() const noexcept;

 private:
  bool named(std::uint64_t key) noexcept {
    std::uint64_t& recent = recent_[(key * 0x9E3779B97F4A7C15U) >> 56U];
    return recent == key || look_up(key, recent);
  }
  bool look_up(std::uint64_t key, std::uint64_t& recent);
  void name_text(const char* text);
  void name_track(Track track, const Row& row);
  bool define(std::uint64_t key, std::uint64_t kind, std::string_view text);
  bool take_room(std::uint64_t begin, std::uint64_t& room, std::uint64_t needed, std::uint64_t most) const;
  void keep(const Event& event);
  void move_to_memory();

  std::filesystem::path file_;
  SliceFile* mapped_ = nullptr;   // null: `kept_` has the events
  std::uint64_t event_room_ = 0;  // bytes that the device has for events, and for names
  std::uint64_t name_room_ = 0;
  std::array<std::uint64_t, 256> recent_{};  // names looked up last
  std::unordered_set<std::uint64_t> named_;  // texts, by their address, and tracks that the file names
  std::vector<Event> kept_;
  std::uint64_t added_ = 0;
};

/// The events that a process has left in a file of `Events`.
struct LeftEvents {
  std::string process;  ///< its process_name; empty: the file is not ready
  std::string part;     ///< has the events already, if it was published; empty: there is none
  Moment began;
  Rows rows;
  std::vector<Event> events;
  std::uint64_t lost = 0;               ///< events before these, which were not kept
  std::shared_ptr<const void> mapping;  ///< has the texts of the events
};

/// True for the name of a file of `Events`.
bool has_events(const std::filesystem::path& file);
/// Returns the process_name of the process that made the file; "" if it is not ready, or gone.
std::string maker_of(const std::filesystem::path& file);
/// @throws std::runtime_error if another version of Sluice made the file, or it cannot be read
LeftEvents read_events(const std::filesystem::path& file);

}  // namespace sluice::base::trace
