export * from './config-follower.ts';
export * from './declaration.ts';
export * from './exit-codes.ts';
export * from './lifecycle.ts';
export * from './process.ts';
export * from './runtime.ts';
export * from './stop.ts';
