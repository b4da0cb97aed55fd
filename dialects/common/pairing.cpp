// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/pairing.hpp"

#include <sluice/channel.hpp>
#include <sluice/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "dialects/common/job.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/common/transfers.hpp"

namespace sluice::stream_mpi {
namespace {

constexpr std::uint32_t kOffer = 0x51a1ce01;  // changes with the struct

/// The sender's message to the receiver, by MPI.
struct Offer {
  std::uint32_t kind = kOffer;
  Tag tag = 0;
  std::uint64_t bytes = 0;
  std::uint64_t refused = 0;  ///< 1: this rank cannot serve it
};

/// A message of MPI's that is under way.
struct Message {
  Offer offer;
  MPI_Request request = MPI_REQUEST_NULL;
};

bool is_done(Message& message) {
  int flag = 0;
  PMPI_Test(&message.request, &flag, MPI_STATUS_IGNORE);
  return flag != 0;
}

const char* why_not(const Layout& layout, const std::optional<Stream>& gpu) {
  return gpu && !layout.contiguous() ? "a datatype whose elements do not follow each other, on a GPU's stream"
                                     : nullptr;
}

// A receiver that cannot serve its datatype names other contents than the sender, so that both ends fail.
constexpr std::string_view kContents = "a message";
constexpr std::string_view kNoContents = "no message: the receiver cannot serve its datatype on this stream";

ChannelOptions options_of(const std::optional<Stream>& gpu) {
  return {.stream = gpu, .contents = kContents, .shared_memory = true};
}

/// `Context::check` throws failures by age, each once. The oldest ones may be those of messages on a GPU's stream.
void forget_failure(Job& job, const Error& failure) {
  for (bool found = false; !found;) {
    try {
      job.context.check();
      return;
    } catch (const Error& oldest) {
      found = std::string_view(oldest.what()) == failure.what();
      if (!found) job.untold.note(report("a message that has failed"));
    }
  }
}

/// True if the channel of a message is connected. Its failure is that of the match: no queue returns it again.
bool is_connected(const ChannelHandle& end, Job& job) {
  try {
    return end.connected();
  } catch (const Error& error) {
    forget_failure(job, error);
    if (error.code() != Code::mismatch || std::string_view(error.what()).find(kNoContents) == std::string_view::npos)
      throw;
    throw Refused(kUnsupported, error.what());
  }
}

class Sending final : public Pairing {
 public:
  Sending(std::shared_ptr<Job> job, const Envelope& envelope, Layout layout, std::optional<Stream> gpu)
      : job_(std::move(job)), layout_(std::move(layout)), gpu_(gpu),
        watch_(*job_, Job::rank_of(envelope.comm, envelope.peer)), refused_(why_not(layout_, gpu_)) {
    bytes = layout_.bytes();
    const Rank peer = Job::rank_of(envelope.comm, envelope.peer);
    Offer& offer = message_->offer;
    offer = {.tag = job_->next_tag(peer), .bytes = bytes, .refused = refused_ == nullptr ? 0U : 1U};
    if (refused_ == nullptr) {
      if (!layout_.contiguous()) packed_ = job_->context.allocate(bytes).all();
      const Slice slot = layout_.contiguous() ? job_->slice(layout_.data(), bytes) : packed_;
      sender_ = job_->scope.sender(peer, offer.tag, slot, options_of(gpu_));
    }
    PMPI_Isend(&offer, sizeof offer, MPI_BYTE, envelope.peer, envelope.tag, envelope.comm, &message_->request);
  }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;
  ~Sending() override {
    if (!sent_ && !is_done(*message_)) Job::keep(message_);
  }

  bool advance() override {
    sent_ = sent_ || is_done(*message_);
    if (!sent_) return watch_.look(), false;
    if (refused_ != nullptr) throw Refused(kUnsupported, refused_);
    if (!is_connected(sender_, *job_)) return watch_.look(), false;
    sender_.put(gpu_.value_or(Stream::program_order()), 0, 0);
    operation = make_send(std::move(sender_), std::move(layout_), packed_);
    return true;
  }

 private:
  std::shared_ptr<Job> job_;
  Layout layout_;
  std::optional<Stream> gpu_;
  PeerWatch watch_;
  const char* refused_;
  std::shared_ptr<Message> message_ = std::make_shared<Message>();
  bool sent_ = false;
  Slice packed_;
  Sender sender_;
};

class Receiving final : public Pairing {
 public:
  Receiving(std::shared_ptr<Job> job, const Envelope& envelope, Layout layout, std::optional<Stream> gpu)
      : job_(std::move(job)), layout_(std::move(layout)), gpu_(gpu), peer_(Job::rank_of(envelope.comm, envelope.peer)),
        watch_(*job_, peer_) {
    PMPI_Irecv(&message_.offer, sizeof message_.offer, MPI_BYTE, envelope.peer, envelope.tag, envelope.comm,
               &message_.request);
  }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;
  ~Receiving() override {
    if (message_.request == MPI_REQUEST_NULL) return;
    PMPI_Cancel(&message_.request);
    PMPI_Wait(&message_.request, MPI_STATUS_IGNORE);
  }

  bool advance() override {
    if (!received_) {
      if (!is_done(message_)) return watch_.look(), false;
      received_ = true;
      open(message_.offer);
    }
    if (!is_connected(receiver_, *job_) || !receiver_.test()) return watch_.look(), false;
    operation = make_receive(std::move(receiver_), std::move(layout_), packed_, bytes);
    return true;
  }

 private:
  void open(const Offer& offer) {
    if (offer.kind != kOffer) throw Refused(MPI_ERR_OTHER, "a message of the program's came in place of a match");
    if (offer.refused != 0) throw Refused(kUnsupported, "the sender cannot serve its datatype on its stream");
    ChannelOptions options = options_of(gpu_);
    // If the message is too long, the sizes of the slots differ, and so both ends fail.
    bytes = std::min<std::size_t>(offer.bytes, layout_.bytes());
    if (why_not(layout_, gpu_) != nullptr) options.contents = kNoContents;
    const bool in_place = layout_.contiguous();
    if (!in_place) packed_ = job_->context.allocate(std::max<std::size_t>(bytes, 1)).slice(0, bytes);
    receiver_ =
        job_->scope.receiver(peer_, offer.tag, in_place ? job_->slice(layout_.data(), bytes) : packed_, options);
  }

  std::shared_ptr<Job> job_;
  Layout layout_;
  std::optional<Stream> gpu_;
  Rank peer_;
  PeerWatch watch_;
  Message message_;
  bool received_ = false;
  Slice packed_;
  Receiver receiver_;
};

}  // namespace

void check_rank_and_tag(const Envelope& envelope) {
  int size = 0;
  PMPI_Comm_size(envelope.comm, &size);
  if (envelope.peer != MPI_PROC_NULL && (envelope.peer < 0 || envelope.peer >= size))
    throw Refused(MPI_ERR_RANK, "rank " + std::to_string(envelope.peer) + " of " + std::to_string(size));
  int* most = nullptr;
  int flag = 0;
  PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &flag);
  if (envelope.tag < 0 || (flag != 0 && envelope.tag > *most))
    throw Refused(MPI_ERR_TAG, "the tag " + std::to_string(envelope.tag));
}

std::unique_ptr<Pairing> pair_send(std::shared_ptr<Job> job, const Envelope& envelope, Layout layout,
                                   std::optional<Stream> gpu) {
  return std::make_unique<Sending>(std::move(job), envelope, std::move(layout), gpu);
}

std::unique_ptr<Pairing> pair_receive(std::shared_ptr<Job> job, const Envelope& envelope, Layout layout,
                                      std::optional<Stream> gpu) {
  return std::make_unique<Receiving>(std::move(job), envelope, std::move(layout), gpu);
}

}  // namespace sluice::stream_mpi
