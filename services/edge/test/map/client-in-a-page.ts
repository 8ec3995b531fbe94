/** A module for browsers: shows the address of some bytes as the title of its page, computed by the client. */
import { ObjectHasher } from '@ron/client';

const hasher = new ObjectHasher();
hasher.update(new Uint8Array(200_000).fill(7));
const { document } = globalThis as unknown as { readonly document: { title: string } };
document.title = hasher.finish();
