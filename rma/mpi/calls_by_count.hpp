// SPDX-License-Identifier: Apache-2.0
// MPI's accesses with counts, and those with a notification beside them. Each has two forms, for which
// calls_accesses.cpp includes this file twice: with counts of type int, and of type MPI_Count, where names end in _c.
//
// SLUICE_RMA_COUNT         the type
// SLUICE_RMA_FORM(name)    the name of a call in this form

int SLUICE_RMA_FORM(MPI_Put)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank, MPI_Aint at,
                             SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Win win) {
  if (put_directly(win, origin, count, type, {there_count, there, rank, at})) return MPI_SUCCESS;
  return go_long_way([=] {
    if (const auto done = put({win}, here(origin, count, type), {rank, at, there_count, there})) return *done;
    SLUICE_RMA_BEHIND(SLUICE_RMA_FORM(Put), origin, count, type, rank_at_mpi(win, rank), at, there_count, there, win);
  });
}

int SLUICE_RMA_FORM(MPI_Get)(void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank, MPI_Aint at,
                             SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Win win) {
  if (get_directly(win, origin, count, type, {there_count, there, rank, at})) return MPI_SUCCESS;
  return go_long_way([=] {
    if (const auto done = get({win}, here(origin, count, type), {rank, at, there_count, there})) return *done;
    SLUICE_RMA_BEHIND(SLUICE_RMA_FORM(Get), origin, count, type, rank_at_mpi(win, rank), at, there_count, there, win);
  });
}

int SLUICE_RMA_FORM(MPI_Accumulate)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank,
                                    MPI_Aint at, SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Op op,
                                    MPI_Win win) {
  const bool alike = type == there && count == there_count && op != MPI_NO_OP;
  if (alike && change_directly(win, origin, nullptr, {count, type, rank, at}, op)) return MPI_SUCCESS;
  return go_long_way([=] {
    const There to{rank, at, there_count, there};
    if (const auto done = change({win}, here(origin, count, type), nullptr, to, op)) return *done;
    SLUICE_RMA_BEHIND(SLUICE_RMA_FORM(Accumulate), origin, count, type, rank_at_mpi(win, rank), at, there_count, there,
                      op, win);
  });
}

int SLUICE_RMA_FORM(MPI_Get_accumulate)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, void* result,
                                        SLUICE_RMA_COUNT result_count, MPI_Datatype result_type, int rank, MPI_Aint at,
                                        SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Op op, MPI_Win win) {
  const bool alike = result_type == there && result_count == there_count &&
                     (op == MPI_NO_OP || (type == there && count == there_count));
  if (alike && change_directly(win, origin, result, {there_count, there, rank, at}, op)) return MPI_SUCCESS;
  return go_long_way([=] {
    const Here before = here(result, result_count, result_type);
    const There to{rank, at, there_count, there};
    if (const auto done = change({win}, here(origin, count, type), &before, to, op)) return *done;
    SLUICE_RMA_BEHIND(SLUICE_RMA_FORM(Get_accumulate), origin, count, type, result, result_count, result_type,
                      rank_at_mpi(win, rank), at, there_count, there, op, win);
  });
}

int SLUICE_RMA_FORM(MPI_Rput)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank, MPI_Aint at,
                              SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Win win, MPI_Request* request) {
  if (const auto done = put({win, request}, here(origin, count, type), {rank, at, there_count, there})) return *done;
  SLUICE_RMA_BEHIND(SLUICE_RMA_FORM(Rput), origin, count, type, rank_at_mpi(win, rank), at, there_count, there, win,
                    request);
}

int SLUICE_RMA_FORM(MPI_Rget)(void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank, MPI_Aint at,
                              SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Win win, MPI_Request* request) {
  if (const auto done = get({win, request}, here(origin, count, type), {rank, at, there_count, there})) return *done;
  SLUICE_RMA_BEHIND(SLUICE_RMA_FORM(Rget), origin, count, type, rank_at_mpi(win, rank), at, there_count, there, win,
                    request);
}

int SLUICE_RMA_FORM(MPI_Raccumulate)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank,
                                     MPI_Aint at, SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Op op,
                                     MPI_Win win, MPI_Request* request) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request}, here(origin, count, type), nullptr, to, op)) return *done;
  SLUICE_RMA_BEHIND(SLUICE_RMA_FORM(Raccumulate), origin, count, type, rank_at_mpi(win, rank), at, there_count, there,
                    op, win, request);
}

int SLUICE_RMA_FORM(MPI_Rget_accumulate)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, void* result,
                                         SLUICE_RMA_COUNT result_count, MPI_Datatype result_type, int rank, MPI_Aint at,
                                         SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Op op, MPI_Win win,
                                         MPI_Request* request) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request}, here(origin, count, type), &before, to, op)) return *done;
  SLUICE_RMA_BEHIND(SLUICE_RMA_FORM(Rget_accumulate), origin, count, type, result, result_count, result_type,
                    rank_at_mpi(win, rank), at, there_count, there, op, win, request);
}

// With a notification. MPI refuses invalid arguments, and calls the error handler.

int SLUICE_RMA_FORM(MPI_Put_notify)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank,
                                    MPI_Aint at, SLUICE_RMA_COUNT there_count, MPI_Datatype there, int index,
                                    MPI_Win win) {
  if (const auto done = put({win, nullptr, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return SLUICE_RMA_FORM(PMPI_Put)(origin, count, type, rank_at_mpi(win, rank), at, there_count, there, win);
}

int SLUICE_RMA_FORM(MPI_Get_notify)(void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank, MPI_Aint at,
                                    SLUICE_RMA_COUNT there_count, MPI_Datatype there, int index, MPI_Win win) {
  if (const auto done = get({win, nullptr, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return SLUICE_RMA_FORM(PMPI_Get)(origin, count, type, rank_at_mpi(win, rank), at, there_count, there, win);
}

int SLUICE_RMA_FORM(MPI_Accumulate_notify)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank,
                                           MPI_Aint at, SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Op op,
                                           int index, MPI_Win win) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, nullptr, index}, here(origin, count, type), nullptr, to, op)) return *done;
  return SLUICE_RMA_FORM(PMPI_Accumulate)(origin, count, type, rank_at_mpi(win, rank), at, there_count, there, op, win);
}

int SLUICE_RMA_FORM(MPI_Get_accumulate_notify)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type,
                                               void* result, SLUICE_RMA_COUNT result_count, MPI_Datatype result_type,
                                               int rank, MPI_Aint at, SLUICE_RMA_COUNT there_count, MPI_Datatype there,
                                               MPI_Op op, int index, MPI_Win win) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, nullptr, index}, here(origin, count, type), &before, to, op)) return *done;
  return SLUICE_RMA_FORM(PMPI_Get_accumulate)(origin, count, type, result, result_count, result_type,
                                              rank_at_mpi(win, rank), at, there_count, there, op, win);
}

int SLUICE_RMA_FORM(MPI_Rput_notify)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank,
                                     MPI_Aint at, SLUICE_RMA_COUNT there_count, MPI_Datatype there, int index,
                                     MPI_Win win, MPI_Request* request) {
  if (const auto done = put({win, request, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return SLUICE_RMA_FORM(PMPI_Rput)(origin, count, type, rank_at_mpi(win, rank), at, there_count, there, win, request);
}

int SLUICE_RMA_FORM(MPI_Rget_notify)(void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank, MPI_Aint at,
                                     SLUICE_RMA_COUNT there_count, MPI_Datatype there, int index, MPI_Win win,
                                     MPI_Request* request) {
  if (const auto done = get({win, request, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return SLUICE_RMA_FORM(PMPI_Rget)(origin, count, type, rank_at_mpi(win, rank), at, there_count, there, win, request);
}

int SLUICE_RMA_FORM(MPI_Raccumulate_notify)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type, int rank,
                                            MPI_Aint at, SLUICE_RMA_COUNT there_count, MPI_Datatype there, MPI_Op op,
                                            int index, MPI_Win win, MPI_Request* request) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request, index}, here(origin, count, type), nullptr, to, op)) return *done;
  return SLUICE_RMA_FORM(PMPI_Raccumulate)(origin, count, type, rank_at_mpi(win, rank), at, there_count, there, op, win,
                                           request);
}

int SLUICE_RMA_FORM(MPI_Rget_accumulate_notify)(const void* origin, SLUICE_RMA_COUNT count, MPI_Datatype type,
                                                void* result, SLUICE_RMA_COUNT result_count, MPI_Datatype result_type,
                                                int rank, MPI_Aint at, SLUICE_RMA_COUNT there_count, MPI_Datatype there,
                                                MPI_Op op, int index, MPI_Win win, MPI_Request* request) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request, index}, here(origin, count, type), &before, to, op)) return *done;
  return SLUICE_RMA_FORM(PMPI_Rget_accumulate)(origin, count, type, result, result_count, result_type,
                                               rank_at_mpi(win, rank), at, there_count, there, op, win, request);
}

#undef SLUICE_RMA_COUNT
#undef SLUICE_RMA_FORM
