/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_NAMES_DEMANGLE_H
#define UNIPROF_SYMBOL_NAMES_DEMANGLE_H

/*
 * Names as they are in the source, from names as compilers write them into
 * files: of C++ (Itanium ABI), Rust (legacy and v0), D, and OCaml. Go's need
 * none. What takes much time or room to print stays as it is: names can be
 * made so that they grow beyond all bounds.
 */

/* For -V: "demangles C++, Rust, D, OCaml". */
extern const char demangle_feature[];

/* In memory of its own, which the caller frees; NULL: it is no such name, or there is no memory. */
char *demangle(const char *name);

/*
 * Private to src/symbol. OCaml's ocamlopt: "camlMain__f_12" (up to 5.0, and
 * 5.1.1 to 5.2), "camlMain.f_12" (5.3 and later on Linux), "camlMain$f_12"
 * (5.4 elsewhere): "Main.f_12". Characters of operators are "$2b" in the file,
 * "$$2b" in the last of the three. The number that keeps functions of one name
 * apart stays, as in perf.
 */
char *demangle_ocaml(const char *name);

/* The others; a build without libiberty knows none of them. */
char *demangle_by_library(const char *name);

#endif
