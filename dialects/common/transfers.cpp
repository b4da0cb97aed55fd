// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/transfers.hpp"

#include <sluice/error.hpp>

#include <mpi.h>

#include <utility>

#include "device/copy_anywhere.hpp"
#include "dialects/common/background.hpp"
#include "dialects/common/beside.hpp"
#include "dialects/common/closing.hpp"
#include "dialects/common/outcome.hpp"
#include "runtime/put_by_stream.hpp"

namespace sluice::stream_mpi {
namespace {

class Send final : public Operation, private Pending {
 public:
  Send(Sender sender, Layout layout, Slice packed)
      : sender_(std::move(sender)), layout_(std::move(layout)), packed_(std::move(packed)),
        leaves_at_once_(detail::is_put_by_stream(sender_)), starts_shortly_(is_short()) {}

  void start() override {
    handover_.await_take_back();  // a queue may have ended between a start and its wait
    handover_.rethrow_failure();
    if (packed_.bytes() > 0) layout_.pack(packed_.data());
    waits_for_credit_ = true;
    if (!put_if_credited()) handover_.to_background();
  }
  bool advance() override {
    if (!handover_.take_back()) return false;
    handover_.rethrow_failure();
    if (!put_if_credited()) return false;
    if (!leaves_at_once_) await_source(Stream::program_order());
    return true;
  }
  void finish() override {
    handover_.await_take_back();
    handover_.rethrow_failure();
    if (std::exchange(waits_for_credit_, false)) sender_.put(Stream::program_order());
    if (!leaves_at_once_) await_source(Stream::program_order());
  }

  bool starts_shortly() const noexcept override { return starts_shortly_; }

  void enqueue_start(Stream stream) override {
    waits_for_credit_ = true;
    enqueue_credited(stream);
  }
  bool incomplete() const noexcept override { return waits_for_credit_; }
  void leave(const Place& start) override {
    if (!waits_for_credit_) return;
    beside_.leave(start);
    handover_.to_background();
  }
  std::shared_ptr<device::Handshake> take_back() noexcept override {
    handover_.await_take_back();
    return beside_.take_back();
  }
  /// A put that is refused is not tried again.
  void enqueue_credited(Stream stream) override {
    handover_.rethrow_failure();
    if (!std::exchange(waits_for_credit_, false)) return;
    if (sender_.credited()) return sender_.put(stream);
    waits_for_credit_ = true;
  }
  void enqueue_move(Stream stream) override {
    if (std::exchange(waits_for_credit_, false)) sender_.put(stream);
  }
  void enqueue_wait(Stream stream) override { await_source(stream); }
  void close(std::optional<Timeout> timeout) override {
    handover_.await_take_back();
    sender_.close(timeout);
  }
  void give_up() noexcept override {
    handover_.await_take_back();
    begin_to_close(sender_);
  }

 private:
  bool is_short() const {
    constexpr std::size_t kShort = 4 * 1024;  // copied by this rank alone, in about 0.2 us
    const std::size_t bytes = layout_.bytes();
    return bytes == 0 || (bytes <= kShort && layout_.contiguous() && !device::in_gpu_memory(layout_.data()));
  }

  /// A peer that has the message may have freed its request already: then there is no next put to acquire a slot for.
  void await_source(Stream stream) {
    try {
      (void)sender_.acquire(stream);
    } catch (const Error& error) {
      if (error.code() != Code::misuse) throw;
      sender_.drain();
    }
  }

  bool put_if_credited() {
    if (!waits_for_credit_) return true;
    if (!sender_.credited()) return false;
    sender_.put(Stream::program_order());
    waits_for_credit_ = false;
    return true;
  }
  bool go_on(detail::EndsWait& waits) noexcept override {
    return handover_.in_background([&] {
      const auto await = [&] { return waits.add(sender_), true; };
      if (!beside_.left()) return !put_if_credited() && await();
      if (!sender_.credited()) return await();
      return beside_.go_on(waits, [this](Stream own) {
        waits_for_credit_ = false;
        sender_.put(own);
        return false;
      });
    });
  }

  Sender sender_;
  Layout layout_;
  Slice packed_;
  /// On a host, a put that the stream does has copied its bytes when it returns. An acquire would come between a signal
  /// and the credit of the next start, which a peer that waits for both then sees later.
  const bool leaves_at_once_;
  const bool starts_shortly_;
  bool waits_for_credit_ = false;
  Beside beside_;
  Handover handover_;
  Background::Listed listed_{*this};
};

class Receive final : public Operation {
 public:
  Receive(Receiver receiver, Layout layout, Slice packed, std::size_t bytes)
      : receiver_(std::move(receiver)), layout_(std::move(layout)), packed_(std::move(packed)), bytes_(bytes) {}

  void start() override { receiver_.release(Stream::program_order()); }
  bool advance() override { return false; }  // a passive one is finished
  void finish() override {
    try {
      (void)receiver_.wait(Stream::program_order());
    } catch (const Error&) {
      if (!receiver_.closed()) throw;
      throw Refused(MPI_ERR_OTHER, "the peer has freed the request of a message that is awaited, or given it up");
    }
    unpack();
  }
  bool passive() const noexcept override { return true; }
  bool starts_shortly() const noexcept override { return true; }

  void enqueue_start(Stream stream) override { receiver_.release(stream); }
  void enqueue_wait(Stream stream) override { (void)receiver_.wait(stream); }
  void close(std::optional<Timeout> timeout) override { receiver_.close(timeout); }
  void give_up() noexcept override { begin_to_close(receiver_); }

 private:
  void unpack() {
    if (packed_.bytes() > 0) layout_.unpack(packed_.data(), bytes_);
  }

  Receiver receiver_;
  Layout layout_;
  Slice packed_;
  std::size_t bytes_;
};

class Nothing final : public Operation {
 public:
  void start() override {}
  bool advance() override { return true; }
  void finish() override {}
  bool starts_shortly() const noexcept override { return true; }
  void enqueue_start(Stream /*stream*/) override {}
  void enqueue_wait(Stream /*stream*/) override {}
  void close(std::optional<Timeout> /*timeout*/) override {}
  void give_up() noexcept override {}
};

}  // namespace

std::shared_ptr<Operation> make_send(Sender sender, Layout layout, Slice packed) {
  return std::make_shared<Send>(std::move(sender), std::move(layout), std::move(packed));
}

std::shared_ptr<Operation> make_receive(Receiver receiver, Layout layout, Slice packed, std::size_t bytes) {
  return std::make_shared<Receive>(std::move(receiver), std::move(layout), std::move(packed), bytes);
}

std::shared_ptr<Operation> make_nothing() { return std::make_shared<Nothing>(); }

}  // namespace sluice::stream_mpi
