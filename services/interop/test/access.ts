/** Capabilities of a listener that a test starts without auth. */
import type { AccessCheck } from '@ron/proto';

/** Grants the scope that `authorization` names, to `operator`. */
export const ACCESS: AccessCheck = {
  checkHeaders: ({ scope, authorization }) => {
    if (authorization !== `Bearer ${scope}`) return { ok: false, code: 'unauthorized', reason: 'no capability' };
    return {
      ok: true,
      capability_id: 'cap-1',
      chain: [],
      subject: 'operator',
      scopes: [scope],
      caveats: [],
      phase2: {
        needsBody: false,
        update: () => undefined,
        end: () => undefined,
        facts: () => undefined,
        settle: () => undefined,
      },
    };
  },
};
