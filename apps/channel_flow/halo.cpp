// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/halo.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace channel_flow {
namespace {

constexpr std::size_t opposite(std::size_t side) { return side ^ 1; }

}  // namespace

Halo::Halo(apps::Session& session, const apps::Pencils& pencils, std::string name, std::vector<Field*> fields,
           apps::WorkQueue& queue)
    : fields_(std::move(fields)), queue_(queue), rank_(session.rank) {
  const int column = rank_ % pencils.columns();
  const int first = rank_ - column;  // of this row
  neighbours_[0] = first + (column + pencils.columns() - 1) % pencils.columns();
  neighbours_[1] = first + (column + 1) % pencils.columns();
  if (first > 0) neighbours_[2] = rank_ - pencils.columns();
  if (first + pencils.columns() < session.decomposition.ranks()) neighbours_[3] = rank_ + pencils.columns();
  // A message has its sender's faces in the order of the sender's sides: they are ghosts of the opposite ones here.
  for (std::size_t side = 0; side < kSides; ++side) {
    if (const auto to = neighbours_[side]; to && *to != rank_) message_of(out_, *to).sides.push_back(side);
    const std::size_t ghosts = opposite(side);
    if (const auto from = neighbours_[ghosts]; from && *from != rank_) message_of(in_, *from).sides.push_back(ghosts);
  }
  apps::Links links{.name = std::move(name)};
  for (auto* side : {&out_, &in_})
    for (Message& message : *side) {
      std::size_t values = 0;
      for (const std::size_t face : message.sides) values += values_of(face);
      message.slots = session.context.allocate(apps::kSlots * values * sizeof(double)).all();
      (side == &out_ ? links.out : links.in).push_back({message.peer, message.slots, "faces"});
    }
  exchange_ = apps::open_host_exchange(session, links, queue.stream());
}

Halo::Message& Halo::message_of(std::vector<Message>& messages, int peer) const {
  const auto found = std::ranges::find(messages, peer, &Message::peer);
  return found != messages.end() ? *found : messages.emplace_back(Message{peer, {}, {}});
}

std::size_t Halo::values_of(std::size_t side) const {
  const Field& field = *fields_.front();
  return fields_.size() * static_cast<std::size_t>(field.nx() * (side < 2 ? field.nz() : field.ny()));
}

template <class Visit>
void Halo::each_face_row(std::size_t side, bool ghosts, const Visit& visit) const {
  for (Field* field : fields_) {
    const bool along_y = side < 2;
    const Index end = along_y ? field->ny() : field->nz();
    const Index place = side % 2 == 0 ? (ghosts ? -1 : 0) : (ghosts ? end : end - 1);
    for (Index i = 0; i < (along_y ? field->nz() : field->ny()); ++i)
      visit(along_y ? field->row(place, i) : field->row(i, place), field->nx());
  }
}

/// One column of ranks is its own neighbour along y.
void Halo::move_own() {
  if (neighbours_[0] != rank_) return;
  for (Field* field : fields_)
    for (Index z = 0; z < field->nz(); ++z) {
      std::copy_n(field->row(field->ny() - 1, z), field->nx(), field->row(-1, z));
      std::copy_n(field->row(0, z), field->nx(), field->row(field->ny(), z));
    }
}

void Halo::pack(int slot) const {
  for (const Message& message : out_) {
    auto* to = reinterpret_cast<double*>(apps::Link{message.peer, message.slots}.slot(slot));
    for (const std::size_t side : message.sides)
      each_face_row(side, false, [&](const double* row, Index n) { to = std::copy_n(row, n, to); });
  }
}

void Halo::unpack(int slot) const {
  for (const Message& message : in_) {
    const auto* from = reinterpret_cast<const double*>(apps::Link{message.peer, message.slots}.slot(slot));
    for (const std::size_t side : message.sides)
      each_face_row(side, true, [&](double* row, Index n) {
        std::copy_n(from, n, row);
        from += n;
      });
  }
}

void Halo::start() {
  slot_ = exchange_->acquire();
  queue_.run([this, slot = slot_] {
    move_own();
    pack(slot);
  });
  exchange_->put();
}

void Halo::finish() {
  exchange_->wait();
  queue_.run([this, slot = slot_] { unpack(slot); });
  exchange_->release();
}

}  // namespace channel_flow
