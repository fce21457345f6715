# SPDX-License-Identifier: Apache-2.0
"""The jobs in .zuul.yaml: their parents, and what those with DevStack test."""

import pathlib
import re
import typing

import yaml

from tests.unit import base

TOP = pathlib.Path(__file__).parents[2]

#: Jobs of other repositories and their parents; base is that of a tenant.
KNOWN = {
    # openstack/openstack-zuul-jobs b8ff5c89: zuul.d/jobs.yaml
    'openstack-multinode-fips': 'base',
    'openstack-tox': 'tox-fips',
    'openstack-tox-cover': 'tox-cover',
    'openstack-tox-docs': 'opendev-tox-docs',
    'openstack-tox-pep8': 'openstack-tox',
    'openstack-tox-py311': 'openstack-tox',
    'openstack-tox-py312': 'openstack-tox',
    'openstack-tox-py313': 'openstack-tox',
    # opendev/base-jobs and zuul/zuul-jobs, named there as parents
    'opendev-tox-docs': 'base',
    'tox-cover': 'base',
    'tox-fips': 'base',
    # openstack/devstack 493835a6: .zuul.yaml
    'devstack-base': 'openstack-multinode-fips',
    'devstack-minimal': 'devstack-base',
    'devstack': 'devstack-minimal',
    'devstack-ipv6': 'devstack',
    # openstack/tempest fa340b1f5: zuul.d/base.yaml, integrated-gate.yaml
    'devstack-tempest': 'devstack',
    'devstack-tempest-ipv6': 'devstack-ipv6',
    'tempest-multinode-full-base': 'devstack-tempest',
    'tempest-multinode-full-py3': 'tempest-multinode-full-base',
}
#: Nodesets in openstack/devstack 493835a6: .zuul.yaml
NODESETS = ('openstack-single-node-noble', 'openstack-two-node-noble')
#: Volumes and snapshots of a project, of one GiB each: cinder.conf in
#: configure_cinder, lib/cinder in openstack/devstack 493835a6.
QUOTA = 20

Job = dict[str, typing.Any]


class ZuulTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.content = yaml.safe_load((TOP / '.zuul.yaml').read_text())
        self.jobs = {each['job']['name']: each['job']
                     for each in self.content if 'job' in each}
        settings = (TOP / 'devstack/settings').read_text()
        self.plugin = re.search(r'^define_plugin (\S+)$', settings,
                                re.MULTILINE)[1]
        self.settings = set(re.findall(r'DMCLONE_\w+', settings))

    def chain(self, name: str) -> list[str]:
        """Return a job's name, its parent's, and so on."""
        found = [name]
        while name != 'base':
            name = (self.jobs[name]['parent'] if name in self.jobs
                    else KNOWN[name])
            self.assertNotIn(name, found)
            found.append(name)
        return found

    def with_devstack(self) -> list[tuple[str, list[Job]]]:
        """Return (name, definitions here) of each job with DevStack.

        The definition of the oldest ancestor is the first.
        """
        found = [(name, [self.jobs[each] for each in self.chain(name)[::-1]
                         if each in self.jobs])
                 for name in self.jobs if 'devstack' in self.chain(name)]
        self.assertTrue(found)
        return found

    @staticmethod
    def merged(jobs: list[Job], name: str) -> dict[str, typing.Any]:
        """Return a dictionary among the variables, which Zuul merges."""
        return {key: value for job in jobs
                for key, value in job.get('vars', {}).get(name, {}).items()}

    @staticmethod
    def last(jobs: list[Job], name: str) -> typing.Any:
        """Return a variable that Zuul replaces."""
        return [job['vars'][name] for job in jobs
                if name in job.get('vars', {})][-1]

    def test_parents(self):
        for name in self.jobs:
            self.assertEqual('base', self.chain(name)[-1], name)

    def test_pipelines(self):
        """Each job of a pipeline exists, and can be run."""
        project, = [each['project'] for each in self.content
                    if 'project' in each]
        used = set()
        for pipeline in ('check', 'gate'):
            for each in project[pipeline]['jobs']:
                name, = each if isinstance(each, dict) else (each,)
                self.assertIn(name, {**KNOWN, **self.jobs})
                self.assertFalse(self.jobs.get(name, {}).get('abstract'))
                used.add(name)
        self.assertEqual(
            {name for name, job in self.jobs.items()
             if not job.get('abstract')}, used & set(self.jobs))

    def test_nodesets(self):
        for job in self.jobs.values():
            self.assertIn(job.get('nodeset', NODESETS[0]), NODESETS)

    def test_plugin(self):
        """Each job with DevStack tests this driver, and no other."""
        for name, jobs in self.with_devstack():
            self.assertIn(self.plugin, self.merged(jobs, 'devstack_plugins'),
                          name)
            self.assertIn(self.plugin, [
                project.rpartition('/')[2] for job in jobs
                for project in job.get('required-projects', ())], name)
            self.assertEqual(
                'dmclone:dmclone', self.merged(jobs, 'devstack_localrc')[
                    'CINDER_ENABLED_BACKENDS'], name)

    def test_subnodes(self):
        """A dictionary of a group replaces that of all nodes.

        So a group has the same backends, and no other plugins.
        """
        for name, jobs in self.with_devstack():
            for group in (group for job in jobs
                          for group in job.get('group-vars', {}).values()):
                self.assertNotIn('devstack_plugins', group, name)
                common = self.merged(jobs, 'devstack_localrc')
                for key, value in group['devstack_localrc'].items():
                    self.assertEqual(common[key], value, name)

    def test_settings(self):
        for name, jobs in self.with_devstack():
            for key in self.merged(jobs, 'devstack_localrc'):
                if key.startswith('DMCLONE_'):
                    self.assertIn(key, self.settings, name)

    def test_disk(self):
        """The volume group is large enough for all workers of Tempest."""
        for name, jobs in self.with_devstack():
            size = self.merged(jobs, 'devstack_localrc')[
                'VOLUME_BACKING_FILE_SIZE']
            self.assertTrue(int(size.removesuffix('G')) > QUOTA * self.last(
                jobs, 'tempest_concurrency'), name)

    def test_live_migration(self):
        """Two nodes, and servers that boot from volumes go and return."""
        jobs, = [jobs for name, jobs in self.with_devstack()
                 if 'tempest-multinode-full-py3' in self.chain(name)]
        self.assertTrue(self.merged(jobs, 'devstack_localrc')[
            'LIVE_MIGRATE_BACK_AND_FORTH'])
        self.assertTrue(self.merged(jobs, 'devstack_local_conf')[
            'test-config']['$TEMPEST_CONFIG']['compute-feature-enabled'][
                'volume_backed_live_migration'])
        self.assertTrue(re.search(
            self.last(jobs, 'tempest_test_regex'),
            'tempest.api.compute.admin.test_live_migration.LiveMigrationTest.'
            'test_volume_backed_live_migration'))

    def test_choice(self):
        """All of volumes, and all of Cinder's plugin, but what is excluded."""
        for name, jobs in self.with_devstack():
            chosen = self.last(jobs, 'tempest_test_regex')
            if 'live-migration' not in name:
                for test in ('tempest.api.volume.test_volumes_get.V.test_it',
                             'tempest.scenario.test_volume_boot_pattern.T.t',
                             'cinder_tempest_plugin.scenario.test_snapshots'):
                    self.assertTrue(re.search(chosen, test), name)
            path = self.last(jobs, 'tempest_test_exclude_list')
            self.assertTrue((TOP / path.partition(
                '/%s/' % self.plugin)[2]).is_file(), path)

    def test_excluded(self):
        """Each paragraph of expressions has a reason above it."""
        text = (TOP / 'devstack/tempest-exclude.txt').read_text()
        paragraphs = text.split('\n\n')[1:]
        self.assertTrue(paragraphs)
        for paragraph in paragraphs:
            reason = re.match(r'(?:# .+\n)+', paragraph)
            self.assertIsNotNone(reason, paragraph)
            patterns = paragraph[reason.end():].split()
            self.assertTrue(patterns, paragraph)
            for pattern in patterns:
                self.assertTrue(re.compile(pattern).pattern.startswith('^'))
