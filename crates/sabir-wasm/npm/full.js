// The entry that loads everything before anything else runs, for programs that cannot await `load`.
import { load } from "sabir";

await load();

export * from "sabir";
