/** The part that all routes for operators share. [edge I-9] The capability is checked before any work begins. */
export const ADMIN = { scope: 'edge:admin', lane: 'inline' } as const;
