/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that include MPI Advance's header of this name get Sluice's by -I.../include/sluice/dialects/mpi_advance. */
#include <sluice/dialects/mpis.h>
