export * from './authority.ts';
export * from './hostile-server.ts';
