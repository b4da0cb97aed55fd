// SPDX-License-Identifier: Apache-2.0
// Signals between a GPU's stream and a thread of the host, in the order of the stream.
#pragma once

#include <sluice/export.hpp>
#include <sluice/stream.hpp>

#include <cstdint>
#include <memory>

namespace sluice::device {

/// The stream signals the host, and waits for the host's answer, by words of no channel. So no limit of time ends a
/// wait: the thread of the host answers in any case.
///
/// The stream is given work by one thread at a time. All that it needs is loaded and mapped when this is made. If the
/// stream has not passed its work at the end, the words and their memory are kept.
class SLUICE_EXPORT Handshake {
 public:
  /// @throws GpuError for a stream that is none; Error{Code::unsupported} without a driver
  explicit Handshake(Stream stream);
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;
  /// As `end`, once the library's own stream has given its answers.
  ~Handshake();

  Stream stream() const noexcept;
  /// A stream of the library's own on the same GPU, which waits for nothing.
  Stream own_stream() const noexcept;
  /// @throws GpuError if the stream captures a graph, or after `end`
  void check() const;
  /// @throws GpuError if the stream captures a graph
  static void check_capture(Stream stream);
  /// False if the handle now names a stream of another GPU. @throws GpuError
  bool is_of(Stream stream) const;
  /// True if the stream has run all work that it was given here.
  bool idle() const noexcept;

  /// Signals the host when the stream comes there. Returns the number of the signal, from 1 on.
  /// @throws GpuError as `check`: nothing has changed; or if the driver refuses: as `end`
  std::uint64_t signal();
  /// As `signal`; later work on the stream runs only when `answer` was called with that number, or a later one.
  std::uint64_t signal_and_wait();

  /// True once the stream has signalled. Any thread.
  bool signalled(std::uint64_t number) const noexcept;
  /// True if later signals may never come: after `end`, or because the GPU's context has failed. Any thread.
  bool ended() noexcept;
  /// True after `end`: the stream waits for no answer any more, so a signal says nothing of what precedes it.
  bool given_up() const noexcept;
  /// Numbers rise. One thread at a time.
  void answer(std::uint64_t number) noexcept;
  /// As `answer`, once `own_stream()` has done the work it was given before. By the thread that gives `stream()` work.
  /// Not while `answer` may be called: the word of the answers has one writer at a time.
  void answer_behind_own_stream(std::uint64_t number) noexcept;
  /// Blocks until `own_stream()` has done the work it was given before, or the GPU's context has failed.
  void await_own_stream() const noexcept;
  /// Answers all signals, also those to come. Any thread.
  void end() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::device
