export * from './node-fetch.ts';
export * from './reach.ts';
