/* Loads libmemra at run time, as a server does that must start without it:
 *
 *   dlopen_example [path of libmemra.so.0]
 *
 * Ask for the SONAME, never for the bare libmemra.so: the SONAME is the ABI. The types and the
 * *_init functions come from memra.h, so nothing has to be linked. */
#include <dlfcn.h>
#include <memra.h>
#include <stdio.h>

typedef uint32_t (*version_fn)(void);
typedef const char* (*last_error_fn)(void);
typedef memra_status (*options_init_fn)(memra_engine_options*, uint32_t);
typedef memra_status (*create_fn)(const memra_engine_options*, memra_engine**);
typedef void (*destroy_fn)(memra_engine*);

static void* library;

/* ISO C has no cast from an object pointer to a function pointer; POSIX has this detour. */
static int find(const char* name, void* function) {
  *(void**)function = dlsym(library, name);
  if (*(void**)function == NULL) fprintf(stderr, "%s\n", dlerror());
  return *(void**)function != NULL;
}

int main(int argc, char** argv) {
  version_fn version;
  last_error_fn last_error;
  options_init_fn options_init;
  create_fn create;
  destroy_fn destroy;
  memra_engine_options options;
  memra_engine* engine = NULL;

  library = dlopen(argc > 1 ? argv[1] : "libmemra.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (!find("memra_version", &version) || !find("memra_last_error", &last_error) ||
      !find("memra_engine_options_init", &options_init) || !find("memra_engine_create", &create) ||
      !find("memra_engine_destroy", &destroy)) {
    return 1;
  }
  if (options_init(&options, sizeof options) != MEMRA_OK || create(&options, &engine) != MEMRA_OK) {
    fprintf(stderr, "%s\n", last_error());
    return 1;
  }
  printf("loaded memra %u\n", (unsigned)version());
  destroy(engine);
  return dlclose(library) == 0 ? 0 : 1;
}
