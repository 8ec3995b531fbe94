/** Preloaded into a process of a test: logs each loaded module that belongs to a DHT library. */
import { registerHooks } from 'node:module';

const DHT_LIBRARY = /node_modules\/(?:@libp2p|libp2p|@chainsafe|@multiformats|interface-datastore)\//;

registerHooks({
  load(url, context, nextLoad) {
    if (DHT_LIBRARY.test(url)) process.stderr.write(`${JSON.stringify({ msg: 'loaded', url })}\n`);
    return nextLoad(url, context);
  },
});
